"""What the tests of clusters outside Ray share: machines that can be removed, and a notebook that leaves no rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import psutil
import pytest

from tests.cluster.conftest import Shared
from tests.live_notebook import Notebook, wait_until


class Rig(Protocol):
    """What makes this machine look like several."""

    @property
    def environ(self) -> dict[str, str]:
        """Variables by which kernels and bridges find the machines."""

    def processes(self) -> Sequence[psutil.Process]:
        """The processes that may be agents."""

    def kill(self, name: str) -> None:
        """Removes a machine."""

    def start(self, name: str) -> None:
        """Adds it again."""

    def close(self) -> None:
        """Ends all machines."""


Some = TypeVar("Some", bound=Rig)


class Machines:
    """The machines, as the tests of clusters know them.

    Args:
        rig: Holds them.
        names: Their names; the tests remove the second.
        address: The cluster's.
        setting: The line of a notebook that chooses the cluster.
    """

    def __init__(self, rig: Rig, names: Sequence[str], address: str, setting: str) -> None:
        self.machines = names
        self.address = address
        self.setting = setting
        self.is_whole = True
        self._rig = rig

    def agents(self) -> list[psutil.Process]:
        """The agents that run."""
        return [process for process in self._rig.processes() if _is_agent(process)]

    def tell(self, word: str) -> None:
        """Removes the second machine, or adds it again."""
        (self._rig.kill if word == "remove" else self._rig.start)(self.machines[1])
        self.is_whole = word == "add"


def _is_agent(process: psutil.Process) -> bool:
    try:
        return "python" in process.name() and "cluster.agent.main" in process.cmdline()[-1]
    except (psutil.Error, IndexError):
        return False


def running(rig: Some) -> Iterator[Some]:
    """A rig that kernels find, until the end of the session."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in rig.environ.items():
            patch.setenv(name, value)
        try:
            yield rig
        finally:
            rig.close()


def without_ranks_left(shared: Shared, may_stay: Callable[[psutil.Process], bool]) -> Iterator[Notebook]:
    """The notebook that the tests share; it fails a test that leaves ranks behind."""
    found = shared.get()
    yield found

    def is_left(process: psutil.Process) -> bool:
        try:
            return not may_stay(process)
        except psutil.NoSuchProcess:  # it has ended since it was listed
            return False

    def left() -> list[psutil.Process]:
        return [process for process in found.launched() if is_left(process)]

    try:
        if found.is_usable():
            wait_until(lambda: not left(), what=lambda: f"left behind: {left()}")
    except TimeoutError:
        shared.drop()
        raise
