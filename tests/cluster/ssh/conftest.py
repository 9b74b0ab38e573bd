"""Ranks on hosts that are reached over ssh. What these tests share with those of Ray is imported from there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.cluster.conftest import Shared, open_notebook, shared  # noqa: F401  # with another cluster
from tests.cluster.ssh.rig import NODES, Hosts, why_not
from tests.live_notebook import Notebook, wait_until


class Cluster:
    """The hosts, as the tests of clusters know them."""

    address = "ssh://ada,bob"
    machines = NODES
    setting = "%accelerate --cluster ssh://ada,bob -n 4 --device cpu"

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.is_whole = True

    def agents(self) -> list[psutil.Process]:
        """The agents that run."""
        return [process for process in self.hosts.processes() if _is_agent(process)]

    def tell(self, word: str) -> None:
        """Removes the second host, or adds it again."""
        (self.hosts.kill if word == "remove" else self.hosts.start)(NODES[1])
        self.is_whole = word == "add"


def _is_agent(process: psutil.Process) -> bool:
    try:
        return "cluster.agent.main" in process.cmdline()[-1]
    except (psutil.Error, IndexError):
        return False


@pytest.fixture(scope="session")
def hosts() -> Iterator[Hosts]:
    if reason := why_not():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="ssh-") as home, pytest.MonkeyPatch.context() as patch:
        found = Hosts(Path(home))
        for name, value in found.environ.items():
            patch.setenv(name, value)  # kernels and bridges inherit these
        try:
            yield found
        finally:
            found.close()


@pytest.fixture(scope="session")
def cluster(hosts: Hosts) -> Cluster:
    return Cluster(hosts)


@pytest.fixture
def notebook(shared: Shared) -> Iterator[Notebook]:  # noqa: F811
    found = shared.get()
    yield found

    def ranks() -> list[psutil.Process]:
        return [process for process in found.launched() if process.name() != "ssh"]  # which lasts as its agent does

    try:
        if found.is_usable():
            wait_until(lambda: not ranks(), what=lambda: f"left behind: {ranks()}")
    except TimeoutError:
        shared.drop()
        raise
