"""The browser: Debian's chromium, without a window."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, sync_playwright

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
_STORED = "cookies,file_systems,indexeddb,local_storage,websql,service_workers,storage_buckets"
"""All but what is cached."""


@contextmanager
def launch() -> Iterator[Browser]:
    """Starts it, and ends it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PATH, args=_ARGUMENTS)
        yield browser
        browser.close()


def only_tab(context: BrowserContext) -> Page:
    """The one tab that stays open, a window to which takes a second of a core; without what others have set in it."""
    tab, *others = context.pages or [context.new_page()]
    for other in others:
        other.close()
    tab.set_viewport_size(VIEWPORT)
    return tab


def forget(context: BrowserContext, url: str) -> None:
    """Leaves a site, and drops what it has stored, its cookies too: only the cache of its files stays."""
    tab = only_tab(context)
    tab.goto("about:blank")  # where none of its scripts stores anything
    session = context.new_cdp_session(tab)
    session.send("Storage.clearDataForOrigin", {"origin": url, "storageTypes": _STORED})
    session.detach()
    context.clear_cookies()
