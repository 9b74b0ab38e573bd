"""The panel in marimo, whose notebooks are Python files and whose kernel is no Jupyter kernel."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.free_ports import free_port
from tests.live_notebook import wait_until

NOTEBOOK = """
import marimo

app = marimo.App()


@app.cell
def _():
    import os
    import time
    from notebook_accel import notebook_launcher, report
    return notebook_launcher, os, report, time


@app.cell
def _(notebook_launcher, os, report, time):
    def work():
        rank = int(os.environ["RANK"])
        report(loss=0.25 + rank)
        while not os.path.exists("go-on"):
            time.sleep(0.02)
        print("hello from", rank)
        return rank * 10
    results = notebook_launcher(work, num_processes=2)
    return (results,)


@app.cell
def _(results):
    total = f"the results are {results}"
    total
    return (total,)


@app.cell
def _(notebook_launcher, time, total):
    def has_optimizers():
        import sys
        return "torch._dynamo" in sys.modules, "torchdata" in sys.modules
    import torchdata
    until = time.monotonic() + 60
    while (found := notebook_launcher(has_optimizers, num_processes=1)) != [(True, True)] and time.monotonic() < until:
        time.sleep(0.2)
    f"{total}; a rank had {found} at once"
    return
"""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A server of marimo for one notebook, behind a password in the address."""
    (tmp_path / "notebook.py").write_text(NOTEBOOK)
    (tmp_path / "marimo").mkdir()
    (tmp_path / "marimo" / "marimo.toml").write_text("[runtime]\nauto_instantiate = true\n")  # runs once it is opened
    port = free_port()
    command = [sys.executable, "-m", "marimo", "--quiet", "edit", "notebook.py", "--headless", f"--port={port}"]
    options = ["--token-password=secret", "--skip-update-check"]
    own = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "NOTEBOOK_ACCEL_STATE": str(tmp_path / "state")}
    environment = {**os.environ, **own}
    server = subprocess.Popen([*command, *options], cwd=tmp_path, env=environment)
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert server.poll() is None, "the server has ended"
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    try:
        wait_until(answers, 240)
        yield f"{url}/?access_token=secret"
    finally:
        server.terminate()
        server.wait(30)


def test_the_panel_is_live_in_marimo_and_stays(browser: Browser, address: str, tmp_path: Path) -> None:
    """marimo's server, its page and its kernel all start for this one."""
    context = browser.new_context(viewport={"width": 1200, "height": 1100})
    page = context.new_page()
    page.goto(address)
    panel = page.locator(".na-panel")
    expect(panel.get_by_text("running").first).to_be_visible()
    expect(panel.get_by_text("0.25").first).to_be_visible()
    (tmp_path / "go-on").touch()
    expect(page.get_by_text("the results are [0, 10]").first).to_be_visible()
    expect(panel.get_by_text("done").first).to_be_visible()
    expect(page.get_by_text("[1] hello from 1").first).to_be_visible()
    preloaded = "a rank had [(True, True)] at once"  # what optimizers import, and what the notebook has
    expect(page.get_by_text(preloaded).first).to_be_visible()
    context.close()
