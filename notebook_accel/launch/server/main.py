"""The process of the fork server: the child of the kernel that starts ranks, by forking itself or by spawning.

    kernel ── control ──▶ server ──▶ store process
      │  ╲─── group ────▶   │  fork, or spawn
      ╰── channel, pipes ─▶ ranks

Between the kernel and the server is the server's keeper (`keeper.py`).

A fork copies only the calling thread and no device state, so that locks held by other threads stay locked forever and
CUDA refuses to work. The server therefore imports torch, but opens no device and starts no thread. `main` imports,
`start_methods.py` says what, and `server_loop.py` is the loop.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
from collections.abc import Sequence

from notebook_accel.launch.rank import main as rank_main
from notebook_accel.launch.server import forking, keeper
from notebook_accel.launch.server.preloading import import_all
from notebook_accel.launch.server.server_loop import Server
from notebook_accel.launch.server.start_methods import START_METHODS
from notebook_accel.launch.system import own_process
from notebook_accel.launch.system.own_process import adopt_orphans
from notebook_accel.launch.wire.stream import Channel


def serve(method: str, control: Channel, kernel: int, modules: Sequence[str]) -> None:
    """Imports, sends `ready`, and serves. In a fork, runs the role that `run` returns, on an empty stack."""
    adopt_orphans()
    broken = import_all(modules, lambda package: control.send({"importing": package}))
    if method != "spawn":
        prepare()
    own_process.outlive_parent()
    control.send({"ready": broken is None, "broken": broken})
    if broken is not None:
        os._exit(0)
    Server(method, control, kernel, serve).run()()


def serve_prepared(control: Channel, kernel: int) -> None:
    """Serves in a fork of a process that has imported and prepared everything."""
    adopt_orphans()
    control.send({"ready": True, "broken": None})
    Server("fork", control, kernel, serve).run()()


def prepare() -> None:
    """Prepares for forks, after the imports."""
    rank_main.prepare()
    forking.prepare()


def import_for(method: str) -> None:
    """Imports what every server of a start method imports."""
    if method != "spawn":
        forking.before_imports()
    for name in START_METHODS[method].modules:
        with contextlib.suppress(Exception):  # the rank that needs it raises the same error
            importlib.import_module(name)


def ignore_requests_to_end() -> None:
    """Ignores the signals that ask a process to end.

    A machine that shuts down sends SIGTERM to all processes. Ranks then save a checkpoint, and they end with the
    server. So it stays until the kernel has ended.
    """
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)


def main(fd: int, method: str, kernel: int) -> None:
    """The entry point of the process, in a new interpreter."""
    ignore_requests_to_end()
    keeper.fork_server(kernel)
    control = Channel(socket.socket(fileno=fd))
    import_for(method)
    serve(method, control, kernel, ())
