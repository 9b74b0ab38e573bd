"""Front ends in a browser, each with a server for the whole session, and kernels of several versions."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, expect

from tests.browser import chromium, kernels
from tests.browser.page import PATIENCE, PRELUDE, Page
from tests.browser.server import Server

PICTURES = Path(__file__).parents[2] / ".screenshots"
ALL_KERNELS = [kernels.NEWEST, *kernels.OLDER]
OTHERS = [(front_end, kernel) for front_end in ("lab", "notebook") for kernel in ALL_KERNELS][1:]
"""What a test that is marked `everywhere` meets, beside JupyterLab with the newest kernel."""

_Servers = Callable[[str], Server]
_Contexts = Callable[[Server], BrowserContext]

expect.set_options(timeout=PATIENCE * 1000)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "front_end" in metafunc.fixturenames:
        everywhere = metafunc.definition.get_closest_marker("everywhere") is not None
        places = [("lab", kernels.NEWEST), *(OTHERS if everywhere else [])]
        metafunc.parametrize(("front_end", "kernel"), places, ids=["-".join(place) for place in places])


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if chromium.PATH is None:
        # Where all is to run, as in the gate, what is skipped for want of a browser has not passed.
        (pytest.fail if os.environ.get("REQUIRE_CHROMIUM") else pytest.skip)(chromium.MISSING)
    with chromium.launch() as found:
        yield found


@pytest.fixture(scope="session")
def servers() -> Iterator[_Servers]:
    """Starts the server of a front end when it is first asked for."""
    running: dict[str, Server] = {}

    def get(front_end: str) -> Server:
        if front_end not in running:
            running[front_end] = Server(front_end, ALL_KERNELS)
        return running[front_end]

    yield get
    for server in running.values():
        server.close()


@pytest.fixture(scope="session")
def contexts(browser: Browser) -> Iterator[_Contexts]:
    """What the tabs of a front end share, so that its scripts are read and compiled but once."""
    made: dict[Server, BrowserContext] = {}

    def get(server: Server) -> BrowserContext:
        if server not in made:
            made[server] = browser.new_context(viewport=chromium.VIEWPORT)
        return made[server]

    yield get
    for context in made.values():
        context.close()


@pytest.fixture
def page(
    servers: _Servers, contexts: _Contexts, front_end: str, kernel: str, request: pytest.FixtureRequest
) -> Iterator[Page]:
    """A new notebook in a front end, `PRELUDE` run. No script of the page may have crashed after the test."""
    server = servers(front_end)
    name = re.sub(r"\W+", "-", request.node.name.removeprefix("test_")).strip("-")
    title = f"**{request.node.originalname.replace('_', ' ')}** ({front_end}, {kernel})"
    notebook = server.new_notebook(name, title, kernel)
    context = contexts(server)
    with contextlib.ExitStack() as stack:
        stack.callback(server.forget)
        stack.callback(server.end_kernels)
        stack.callback(chromium.forget, context, server.url)
        found = Page(context, server, notebook, PICTURES / name)
        stack.callback(found.leave)
        stack.callback(lambda: found.screenshot("end"))  # of a test that has failed, it tells most
        found.run(PRELUDE)
        yield found
        assert not found.crashes, found.crashes
