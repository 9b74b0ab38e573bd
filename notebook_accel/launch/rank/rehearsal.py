"""What a warm rank does before there is a launch: runs for itself, and without effect, what launches begin with.

A fork shares its memory with the server, and each page is copied when the fork first writes to it. By the time that
ranks have met, each has copied a thousand, which takes it two milliseconds. A warm rank has time for that.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.rank.rank import Rank
from notebook_accel.launch.system import network, own_process
from notebook_accel.launch.wire import payload
from notebook_accel.launch.wire.constants import recorder_size
from notebook_accel.launch.wire.mirrored import notebook_state
from notebook_accel.launch.wire.stream import Channel, pair

_DEVICES = ("nvidia", "kfd", "dxg", "accel", "vfio")
"""How the names of the files in `/dev` begin through which torch opens a device."""
_INTERFACE = "GLOO_SOCKET_IFNAME"
_DEBUG = "TORCH_DISTRIBUTED_DEBUG"
"""With it, a group is another kind of object."""


def run() -> None:
    """Runs a call, mirrors the notebook's state, and joins a process group, all of this process alone."""
    own_process.set_environment(dict(os.environ))
    own_process.redirect_streams(os.dup(1), os.dup(2))
    own_process.limit_threads()
    _call()
    with contextlib.suppress(ConfigurationError):  # the working directory may be gone
        notebook_state.rehearse()
    join_group()
    own_process.flush_files()


def _call() -> None:
    own, remote = map(Channel, pair())
    with contextlib.suppress(ConfigurationError), payload.pack(_make_tensor, (), {}) as call:
        payload.send(call, own)
    own.finish()
    rank = Rank(remote, heartbeat=1.0, isolated=False)
    rank.serve()
    rank.close()
    own.close()


def _make_tensor() -> None:
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.ones(1)


def join_group() -> None:
    """Joins a gloo group of one rank and leaves it, if torch is imported and there is no device that it may open.

    There is no collective: torch's flight recorder would list it.
    """
    dist: Any = sys.modules.get("torch.distributed") if sys.platform == "linux" else None
    if dist is None or not dist.is_available() or not dist.is_gloo_available():
        return
    interface = network.interface_of(network.LOOPBACK)
    if interface is None or os.environ.get(_DEBUG) or any(name.startswith(_DEVICES) for name in os.listdir("/dev")):
        return
    hook, before = sys.excepthook, dict(os.environ)
    os.environ.update({**recorder_size(os.environ), _INTERFACE: interface})
    try:
        with contextlib.suppress(RuntimeError):  # the rank that needs a group raises the same
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        sys.excepthook = hook  # torch has replaced it
        own_process.set_environment(before)
