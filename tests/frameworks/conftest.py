"""A kernel in which each framework is launched as its own documentation says, without a word of ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.kernel.conftest import Shared, notebook, pytest_runtest_makereport, share  # noqa: F401
from tests.live_notebook import Cell, Notebook, wait_until

LONG = 300.0
"""Seconds for a cell: ranks import for many of them where cores are few."""
PRELUDE = """
import warnings
warnings.filterwarnings("ignore")
import json

def told(job):
    bars = [[(bar.description, bar.n, bar.total, bar.closed) for bar in rank.bars.values()] for rank in job.ranks]
    return {"bars": bars, "metrics": [sorted(rank.metrics) for rank in job.ranks]}

def launch(function, *args, size=2, **options):
    job = notebook_launcher(function, args, num_processes=size, block=False, **options)
    return json.dumps({"values": job.result(timeout=280), **told(job)})
"""


@dataclass(frozen=True)
class Told:
    """What a launch has left."""

    values: list[Any]
    """What each rank has returned."""
    bars: list[list[list[Any]]]
    """By rank, each bar: its description, how far it came, its total, whether it is closed."""
    metrics: list[list[str]]
    """By rank, the names of what was logged."""
    output: str

    @property
    def names(self) -> list[list[str]]:
        return [[bar[0] for bar in bars] for bars in self.bars]


Launch = Callable[..., Told]


@pytest.fixture(scope="module")
def shared() -> Iterator[Any]:
    """Each framework has a kernel of its own, as a user would."""
    yield from share()


@pytest.fixture
def defined(notebook: Notebook, request: pytest.FixtureRequest) -> None:  # noqa: F811
    """Runs the cell that the file's tests launch functions of."""
    notebook.check(request.module.TRAIN, timeout=LONG)


def wait_for_server(notebook: Notebook) -> None:  # noqa: F811
    """Waits until the server has imported what the notebook has: each rank would take the same seconds for it."""
    notebook.check("from notebook_accel.launch import engines")
    wait_until(lambda: notebook.value("engines.get().next is None"), LONG)


@pytest.fixture(scope="module")
def failed(shared: Shared, request: pytest.FixtureRequest) -> Cell:
    """A launch that fails, before those that train."""
    kernel = shared.get()
    kernel.check(request.module.TRAIN, timeout=LONG)
    wait_for_server(kernel)
    return kernel.run(f"notebook_launcher(train, {request.module.FAILING}, num_processes=2)", timeout=LONG)


@pytest.fixture
def launch(notebook: Notebook) -> Launch:  # noqa: F811
    """Launches what a cell has defined, and reads what came of it."""
    notebook.check(PRELUDE)

    def run(call: str, **options: Any) -> Told:
        given = "".join(f", {name}={value!r}" for name, value in options.items())
        cell = notebook.check(f"launch({call}{given})", timeout=LONG)
        assert cell.value is not None
        said = "".join(text for text in (cell.stdout, cell.stderr))
        return Told(**json.loads(eval(cell.value)), output=said)

    return run
