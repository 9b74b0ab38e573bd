"""Front ends in a browser, each with a server for the whole session, and kernels of several versions."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, expect

from tests.browser import chromium, kernels
from tests.browser.page import PATIENCE, PRELUDE, Page
from tests.browser.server import Server
from tests.kernel.conftest import failed, pytest_runtest_makereport  # noqa: F401

_HERE = Path(__file__).parent
_ENDS_KERNELS = "test_snapshot"
"""The file whose tests leave a page that no other can use."""
PICTURES = Path(__file__).parents[2] / ".screenshots"
ALL_KERNELS = [kernels.NEWEST, *kernels.OLDER]
OTHERS = [(front_end, kernel) for front_end in ("lab", "notebook") for kernel in ALL_KERNELS][1:]
"""What a test that is marked `everywhere` meets, beside JupyterLab with the newest kernel; `twice`, only the last."""
_NIGHTLY = OTHERS[:2] + OTHERS[3:-1]
"""What a merge does without: what older kernels send is compared in `tests/kernel`, and Notebook meets the oldest."""

_Servers = Callable[[str], Server]
_Contexts = Callable[[Server], BrowserContext]

expect.set_options(timeout=PATIENCE * 1000)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "front_end" in metafunc.fixturenames:
        others: list[tuple[str, str]] = []
        if metafunc.definition.get_closest_marker("everywhere") is not None:
            others = OTHERS
        elif metafunc.definition.get_closest_marker("front_ends") is not None:
            others = [("notebook", kernels.NEWEST)]
        elif metafunc.definition.get_closest_marker("twice") is not None:
            others = OTHERS[-1:]
        places = [("lab", kernels.NEWEST), *others]
        metafunc.parametrize(
            ("front_end", "kernel"),
            [
                pytest.param(*place, id="-".join(place), marks=[pytest.mark.nightly] if place in _NIGHTLY else [])
                for place in places
            ],
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts those beside each other that share a page."""
    places = [("lab", kernels.NEWEST), *OTHERS]

    def order(item: pytest.Item) -> tuple[int, bool, bool]:
        if not isinstance(item, pytest.Function) or item.path.parent != _HERE or not hasattr(item, "callspec"):
            return -1, False, False
        place = str(item.callspec.params["front_end"]), str(item.callspec.params["kernel"])
        return places.index(place), "own_page" in item.fixturenames, item.path.stem == _ENDS_KERNELS

    items.sort(key=order)


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


class _Pages:
    """The one page that is open."""

    def __init__(self, servers: _Servers, contexts: _Contexts) -> None:
        self._servers = servers
        self._contexts = contexts
        self._closing = contextlib.ExitStack()
        self._numbers = itertools.count()
        self._shared: tuple[str, str, Page] | None = None

    def open(self, front_end: str, kernel: str, title: str) -> Page:
        """Closes what is open, and opens a new notebook, in which it runs `PRELUDE`."""
        self.close()
        server = self._servers(front_end)
        name = f"{next(self._numbers)}-{_as_file(title)}"
        notebook = server.new_notebook(name, f"**{title}** ({front_end}, {kernel})", kernel)
        context = self._contexts(server)
        self._closing.callback(server.forget)
        self._closing.callback(server.end_kernels)
        self._closing.callback(chromium.forget, context, server.url)
        page = Page(context, server, notebook, PICTURES / name)
        self._closing.callback(page.leave)
        page.run(PRELUDE)
        return page

    def share(self, front_end: str, kernel: str) -> Page:
        """The page that tests of this front end and this kernel share, emptied."""
        if self._shared is None or self._shared[:2] != (front_end, kernel) or self._shared[2].is_used_up:
            page = self.open(front_end, kernel, "what several tests do")
            self._shared = front_end, kernel, page
        page = self._shared[2]
        page.clear()
        return page

    def close(self) -> None:
        self._shared = None
        self._closing.close()


@pytest.fixture(scope="session")
def pages(servers: _Servers, contexts: _Contexts) -> Iterator[_Pages]:
    made = _Pages(servers, contexts)
    yield made
    made.close()


def _as_file(text: str) -> str:
    return re.sub(r"\W+", "-", text).strip("-")


@contextlib.contextmanager
def _tested(page: Page, request: pytest.FixtureRequest) -> Iterator[Page]:
    """No script of the page may have crashed after the test."""
    page.pictures = PICTURES / _as_file(request.node.name.removeprefix("test_"))
    yield page
    page.screenshot("end")  # of a test that has failed, it tells most
    assert not page.crashes, page.crashes


@pytest.fixture
def page(pages: _Pages, front_end: str, kernel: str, request: pytest.FixtureRequest) -> Iterator[Page]:
    """An empty notebook with `PRELUDE` run, whose page and kernel other tests use before and after."""
    try:
        with _tested(pages.share(front_end, kernel), request) as found:
            yield found
    except BaseException:
        pages.close()
        raise
    if request.node.stash.get(failed, False):
        pages.close()


@pytest.fixture
def own_page(pages: _Pages, front_end: str, kernel: str, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The same with a page and a kernel that no other test uses."""
    title = request.node.originalname.removeprefix("test_").replace("_", " ")
    try:
        with _tested(pages.open(front_end, kernel, title), request) as found:
            yield found
    finally:
        pages.close()
