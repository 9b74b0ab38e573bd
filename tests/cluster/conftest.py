"""What needs Ray. `scripts/test-cluster` runs this in an environment of its own; elsewhere it is left out."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.kernel.conftest import end, nothing_is_left
from tests.live_notebook import OWN_SERVER, UNTRAINED, Notebook

_HERE = Path(__file__).parent
_OWN_CLUSTERS = {"test_hosts.py": "namespaces", "ssh": "ssh"}
"""What has a cluster of its own."""
_BOUND = 110.0
"""Seconds for the first launch, which waits for the agents."""

# Without torch in the kernels, which start sooner.
PRELUDE = f"""{UNTRAINED}
from notebook_accel import notebook_launcher, report
import os, signal, subprocess, sys, time
"""
PRELUDE += """

def wait():
    print("waiting", flush=True)
    while True:
        time.sleep(0.01)

def place():
    print("rank", os.environ["RANK"], flush=True)
    names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    return [int(os.environ[name]) for name in names]
"""


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leaves all of it out where there is no Ray, without a word for each test."""
    return True if collection_path != _HERE and importlib.util.find_spec("ray") is None else None


class _ByCluster(LoadScopeScheduling):
    """For several workers: a cluster belongs to one of them. Each mostly waits."""

    def _split_scope(self, nodeid: str) -> str:
        parts = nodeid.partition("::")[0].split("/")
        return next((scope for name, scope in _OWN_CLUSTERS.items() if name in parts), "loopback")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return _ByCluster(config, log)


class Cluster:
    """Two Ray nodes, each of which stands for a machine."""

    def __init__(self, home: str) -> None:
        self._home = home
        # Ray's sockets have long names, so the folder has a short one. Without the second it would look for an
        # address that others could reach this machine at.
        self.environ = {"RAY_TMPDIR": home, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.head"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **self.environ},
            text=True,
        )
        try:
            self.address, self.client = self._read().split()
        except BaseException:
            self.close()
            raise
        self.setting = f"%accelerate --cluster {self.address} --nodes 2 -n 4 --device cpu"
        """The magic's line by which a notebook's launches go there."""
        name = os.uname().nodename
        self.machines = (f"{name}#0", f"{name}#1")
        """What they are called in errors and on the panel."""
        self.is_whole = True

    def agents(self) -> list[psutil.Process]:
        """The agents that run on its nodes, whatever other clusters this machine has."""
        found = [process for process in psutil.process_iter() if "ray::RayAgent" in " ".join(_words(process))]
        return [process for process in found if self._home in " ".join(_words_of_parent(process))]

    def tell(self, word: str) -> None:
        """Removes the second node, or adds one."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        assert self._read() == word
        self.is_whole = word == "add"

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the cluster has ended"
        return line

    def close(self) -> None:
        with self._process:  # closes its pipes, and waits
            pass


def _words(process: psutil.Process) -> list[str]:
    """The command line of a process; empty if it has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _words_of_parent(process: psutil.Process) -> list[str]:
    """Those of the process that has started it, which for an agent is its node's."""
    try:
        parent = process.parent()
    except psutil.Error:
        return []
    return [] if parent is None else _words(parent)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with (
        tempfile.TemporaryDirectory(prefix="r-", ignore_cleanup_errors=True) as home,
        pytest.MonkeyPatch.context() as patch,
    ):
        found = Cluster(home)
        for name, value in found.environ.items():
            patch.setenv(name, value)  # kernels and bridges inherit these
        try:
            yield found
        finally:
            found.close()


class Shared:
    """A kernel that many tests share, and whose launches go to the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._notebook: Notebook | None = None

    def get(self) -> Notebook:
        if not self._cluster.is_whole:
            self._cluster.tell("add")
        if self._notebook is not None and not self._notebook.is_usable():
            self.drop()
        if self._notebook is None:
            self._notebook = Notebook(env=OWN_SERVER)
            self._notebook.check(PRELUDE + self._cluster.setting)
        self._notebook.check("notebook_launcher(int)", timeout=_BOUND)  # which no test should wait for
        return self._notebook

    def drop(self) -> None:
        notebook, self._notebook = self._notebook, None
        if notebook is not None:
            end(notebook, 10)


@pytest.fixture(scope="session")
def shared(cluster: Cluster) -> Iterator[Shared]:
    found = Shared(cluster)
    yield found
    found.drop()


@pytest.fixture
def notebook(shared: Shared) -> Iterator[Notebook]:
    found = shared.get()
    yield found
    try:
        if found.is_usable():
            nothing_is_left(found)
    except AssertionError:
        shared.drop()
        raise


@pytest.fixture
def open_notebook() -> Iterator[Callable[..., Notebook]]:
    """Opens kernels for one test. After it nothing of theirs may be left."""
    opened: list[Notebook] = []

    def open_one(**options: Any) -> Notebook:
        opened.append(Notebook(**{"env": OWN_SERVER, **options}))
        return opened[-1]

    yield open_one
    for notebook in opened:
        end(notebook, 10)
