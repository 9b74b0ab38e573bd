"""The engines: the driver's side of each way to start ranks. A new engine is a file here, and a row in `ENGINES`.

contract.py          ─ the base class `Engine`, and what ranks to start; start reading here
ranks.py             ─ started ranks: `RankProcess` is one, `Ranks` is all of them
local_ranks.py       ─ reads what ranks on this machine send; the base of all but the cluster's
fork_server.py       ─ the engine that starts ranks through a fork server, as forks or as new interpreters
server_connection.py ─ the connection to a fork server
load_time.py         ─ the environment variables that are read once, as libraries load
base_server.py       ─ requests fork servers of the base server, which kernels and scripts share
server_ranks.py      ─ the ranks that it has started
tpu.py               ─ the engine for TPUs: the fork server starts one supervisor, which starts the ranks
in_process.py        ─ the engine that runs a single rank on a thread of this process
cluster_engine.py    ─ the engine for other machines: starts the bridge
cluster_ranks.py     ─ the ranks that the bridge reaches
independent.py       ─ ranks that are each a world of their own, and are replaced when they die
preloader.py         ─ tells the engines what this process has imported, for ranks to inherit

`ClusterEngine` is not in the table: `for_cluster` makes one for each cluster's address. An engine with a start method
of its own for the fork server also needs a row in `START_METHODS` of `launch/server/start_methods.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from notebook_accel.errors import ConfigurationError

if TYPE_CHECKING:
    from notebook_accel.launch.engines.cluster_engine import ClusterEngine
    from notebook_accel.launch.engines.contract import Engine

VARIABLE = "NOTEBOOK_ACCEL_ENGINE"


def _forkserver() -> Engine:
    from notebook_accel.launch.engines.fork_server import ServerEngine

    return ServerEngine("fork")


def _spawn() -> Engine:
    from notebook_accel.launch.engines.fork_server import ServerEngine

    return ServerEngine("spawn")


def _inprocess() -> Engine:
    from notebook_accel.launch.engines.in_process import InProcessEngine

    return InProcessEngine()


def _xla() -> Engine:
    from notebook_accel.launch.engines.tpu import XlaEngine

    return XlaEngine()


ENGINES: dict[str, Callable[[], Engine]] = {
    "forkserver": _forkserver,
    "spawn": _spawn,
    "inprocess": _inprocess,
    "xla": _xla,
}
_ENGINE_OF_DEVICE = {"tpu": "xla"}
"""Devices on which only one engine can start ranks."""
running: dict[tuple[int, str], Engine] = {}
"""The engines that have been made, by process and name: a forked process must not use the servers of its parent."""
_clusters: dict[tuple[int, str], ClusterEngine] = {}
_cluster_modules: dict[str, None] = {}
"""Modules to import on the nodes of any cluster, in order."""


def for_cluster(address: str, *, insecure: bool = False) -> ClusterEngine:
    """The engine of a cluster. A process has one for each cluster."""
    from notebook_accel.launch.engines.cluster_engine import ClusterEngine

    key = (os.getpid(), f"{address} {insecure}")
    if key not in _clusters:
        _clusters[key] = ClusterEngine(address, insecure=insecure)
        _clusters[key].preload(list(_cluster_modules))
    return _clusters[key]


def preload_on_clusters(modules: Sequence[str]) -> None:
    """Makes the nodes of all clusters, present and future, import modules for ranks to inherit."""
    _cluster_modules.update(dict.fromkeys(modules))
    for (pid, _), engine in _clusters.items():
        if pid == os.getpid():
            engine.preload(modules)


def get(name: str | None = None, *, device: str | None = None) -> Engine:
    """Returns the process's engine of that name; by default the one for the device, usually the fork server.

    Raises:
        ConfigurationError: There is no engine of that name, or none for this system.
    """
    if sys.platform == "win32":
        raise ConfigurationError("Windows has no way to start ranks safely: run the notebook in WSL 2 instead.")
    fallback = "spawn" if sys.platform == "darwin" else "forkserver"
    name = name or os.environ.get(VARIABLE) or _ENGINE_OF_DEVICE.get(device or "", fallback)
    if name not in ENGINES:
        raise ConfigurationError(f"{VARIABLE}={name!r} is not an engine; choose one of {', '.join(ENGINES)}")
    key = (os.getpid(), name)
    if key not in running:
        running[key] = ENGINES[name]()
    return running[key]


def for_script(source: str = "") -> Engine:
    """The process's engine for ranks that run a script, each of which is a process of this machine.

    Args:
        source: The script.
    """
    from notebook_accel.launch.engines.load_time import may_set_load_time

    return get("spawn" if sys.platform == "darwin" or may_set_load_time(source) else "forkserver")


def default() -> Engine:
    """The engine that launches will probably use, from a quick check of the devices, to warm it up early."""
    from notebook_accel import hardware
    from notebook_accel.hardware import tpus

    device = os.environ.get("NOTEBOOK_ACCEL_DEVICE")
    if not device and any(tpus.device_files()):
        device = hardware.detect().kind
    return get(device=device)
