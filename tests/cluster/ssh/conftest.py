"""Ranks on hosts that are reached over ssh. What these tests share with those of Ray is imported from there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import Shared, open_notebook, shared  # noqa: F401  # with another cluster
from tests.cluster.outside_ray import Machines, running, without_ranks_left
from tests.cluster.ssh.rig import NODES, Hosts, why_not
from tests.live_notebook import Notebook


@pytest.fixture(scope="session")
def hosts() -> Iterator[Hosts]:
    if reason := why_not():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="ssh-") as home:
        yield from running(Hosts(Path(home)))


@pytest.fixture(scope="session")
def cluster(hosts: Hosts) -> Machines:
    return Machines(hosts, NODES, "ssh://ada,bob", "%accelerate --cluster ssh://ada,bob -n 4 --device cpu")


@pytest.fixture
def notebook(shared: Shared) -> Iterator[Notebook]:  # noqa: F811
    # `ssh` lasts as long as its agent.
    yield from without_ranks_left(shared, lambda process: process.name() == "ssh")
