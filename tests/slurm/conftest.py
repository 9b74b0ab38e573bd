"""Ranks that Slurm places. What these tests share with those of Ray is imported from there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import Shared, open_notebook, shared  # noqa: F401
from tests.cluster.outside_ray import Machines, running, without_ranks_left
from tests.live_notebook import Notebook
from tests.slurm.rig import NODES, Slurm, why_not


@pytest.fixture(scope="session")
def cluster() -> Iterator[Machines]:
    if reason := why_not():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="s-", dir="/tmp") as home:  # sockets have short names
        Path(home).chmod(0o755)
        for slurm in running(Slurm(Path(home))):
            yield Machines(slurm, NODES, "slurm", "%accelerate --cluster slurm --nodes 2 -n 4 --device cpu")


@pytest.fixture
def notebook(shared: Shared, cluster: Machines) -> Iterator[Notebook]:  # noqa: F811
    # `srun` starts agents as children of its own, which last as long as the bridge holds the machines.
    yield from without_ranks_left(shared, lambda process: process.pid in {each.pid for each in cluster.agents()})
