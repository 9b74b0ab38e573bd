"""The browser: Debian's chromium, without a window."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, ViewportSize, sync_playwright

PATH = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = "there is no chromium; on Debian and Ubuntu: apt-get install chromium fonts-dejavu-core"
VIEWPORT: ViewportSize = {"width": 1280, "height": 900}
_ARGUMENTS = (
    "--no-sandbox",  # a container's root cannot have one
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def launch() -> Iterator[Browser]:
    """Starts it, and ends it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PATH, args=_ARGUMENTS)
        yield browser
        browser.close()
