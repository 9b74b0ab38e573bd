"""Kernels for the tests: one that most share, replaced when a test has broken it, and fresh ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.live_notebook import Notebook, wait_until

PRELUDE = """
from notebook_accel import *  # first, so that its server starts while this imports
import os, random, signal, sys, threading, time
import numpy as np
import torch
import torch.distributed as dist

def join():
    dist.init_process_group("gloo")
    dist.barrier()
    return dist.get_rank()

def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)
"""
STOPPED_WITHIN = 4.0
"""Seconds after which a cell must have ended that has ranks stopped: less than the grace that ranks have."""
GONE_WITHIN = 20.0
"""Seconds after which nothing of a launch may be left, on a machine with other work."""

failed = pytest.StashKey[bool]()
"""Whether a test, or a fixture of it, has failed."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if report.failed:
        item.stash[failed] = True
    return report


def nothing_is_left(notebook: Notebook) -> None:
    """Waits until no rank is left, and nothing that a rank has started."""
    try:
        wait_until(lambda: not notebook.launched(), GONE_WITHIN)
    except TimeoutError:
        raise AssertionError(f"left behind: {notebook.launched()}") from None


def wait_for_preloading(notebook: Notebook) -> None:
    """Waits for a server that has imported what training needs: ranks before it would each import that, for seconds."""
    notebook.check("notebook_launcher(int, num_processes=1)")  # there is a server: after this cell it preloads
    notebook.check("""
    import select, sys
    from notebook_accel.launch import engines

    while (successor := engines.default().next) is not None:
        select.select([successor.control], [], [], 1.0)
        engines.default().preload(())
    """)
    assert notebook.value(
        "notebook_launcher(lambda: 'notebook_accel.train.accelerator.accelerator' in sys.modules, num_processes=1)"
    ) == [True]


def end(notebook: Notebook, within: float = GONE_WITHIN) -> None:
    """Ends a kernel, and sees that all that came from it goes too, within so many seconds."""
    notebook.close()
    try:
        wait_until(lambda: not notebook.processes(), within)
    except TimeoutError:
        left = notebook.processes()
        for process in left:
            with contextlib.suppress(Exception):
                process.kill()
        raise AssertionError(f"outlived the kernel: {left}") from None
    finally:
        notebook.clean()


class Shared:
    """A kernel that many tests share."""

    def __init__(self) -> None:
        self._notebook: Notebook | None = None

    def get(self) -> Notebook:
        if self._notebook is not None and not self._notebook.is_usable():
            self.drop()
        if self._notebook is None:
            self._notebook = Notebook()
            self._notebook.check(PRELUDE)
            wait_for_preloading(self._notebook)  # which no test should wait for
        return self._notebook

    def drop(self) -> None:
        notebook, self._notebook = self._notebook, None
        if notebook is not None:
            end(notebook)


def share() -> Iterator[Shared]:
    kernel = Shared()
    yield kernel
    kernel.drop()


@pytest.fixture(scope="session")
def shared() -> Iterator[Shared]:
    """The kernel behind `notebook`. A file whose tests count on what has been imported overrides it with its own."""
    yield from share()


@pytest.fixture
def notebook(shared: Shared, request: pytest.FixtureRequest) -> Iterator[Notebook]:
    """The shared kernel, with `PRELUDE` run and a warm server. After the test no rank may be left."""
    found = shared.get()
    yield found
    try:
        nothing_is_left(found)
    except AssertionError:
        shared.drop()
        raise
    if request.node.stash.get(failed, False):
        with contextlib.suppress(AssertionError):  # the test has failed already
            shared.drop()


@pytest.fixture
def open_notebook() -> Iterator[Callable[..., Notebook]]:
    """Opens kernels for one test. After it nothing of theirs may be left."""
    opened: list[Notebook] = []

    def open_one(**options: Any) -> Notebook:
        opened.append(Notebook(**options))
        return opened[-1]

    yield open_one
    with contextlib.ExitStack() as stack:
        for notebook in opened:
            stack.callback(end, notebook)
