"""Ranks that Slurm places. What these tests share with those of Ray is imported from there."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.cluster.conftest import Shared, open_notebook, shared  # noqa: F401
from tests.live_notebook import Notebook, wait_until
from tests.slurm.rig import NODES, Slurm, why_not


class Cluster:
    """The machines, as the tests of clusters know them."""

    address = "slurm"
    machines = NODES
    setting = "%accelerate --cluster slurm --nodes 2 -n 4 --device cpu"

    def __init__(self, slurm: Slurm) -> None:
        self.slurm = slurm
        self.is_whole = True

    @staticmethod
    def agents() -> list[psutil.Process]:
        """The agents that run."""
        return [process for process in psutil.process_iter() if _is_agent(process)]

    def tell(self, word: str) -> None:
        """Removes the second machine, or adds it again."""
        (self.slurm.kill if word == "remove" else self.slurm.start)(NODES[1])
        self.is_whole = word == "add"


def _is_agent(process: psutil.Process) -> bool:
    try:
        command = process.cmdline()
    except psutil.Error:
        return False
    return command[:1] == [sys.executable] and "cluster.agent.main" in command[-1]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    if reason := why_not():
        pytest.skip(reason)
    with (
        tempfile.TemporaryDirectory(prefix="s-", dir="/tmp") as home,  # sockets have short names
        pytest.MonkeyPatch.context() as patch,
    ):
        Path(home).chmod(0o755)
        slurm = Slurm(Path(home))
        for name, value in slurm.environ.items():
            patch.setenv(name, value)  # kernels and bridges inherit these
        try:
            yield Cluster(slurm)
        finally:
            slurm.close()


@pytest.fixture
def notebook(shared: Shared) -> Iterator[Notebook]:  # noqa: F811
    found = shared.get()
    yield found

    def ranks() -> list[psutil.Process]:
        kept = {process.pid for process in shared._cluster.agents()}
        return [process for process in found.launched() if process.pid not in kept]

    try:
        if found.is_usable():
            wait_until(lambda: not ranks(), what=lambda: f"left behind: {ranks()}")
    except TimeoutError:
        shared.drop()
        raise
