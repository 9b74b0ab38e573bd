"""The process that hosts the rendezvous stores of all groups.

A store has threads, so it must not run in the process that forks ranks. It takes over a socket that already listens on
one IPv4 address. By default, torch's store listens on every interface, dual-stack, and looks up the name of every
client, which can mean waiting for a name server (see `system/network.py`). On the loopback interface, a guard
keeps other users out (`store_guard.py`).
"""

from __future__ import annotations

import datetime
import os
import socket
import threading
import weakref
from collections.abc import Callable
from typing import Any

from notebook_accel import garbage_collection
from notebook_accel.launch.server import rendezvous, store_guard
from notebook_accel.launch.server.store_guard import StoreGuard
from notebook_accel.launch.system import limits
from notebook_accel.launch.system.network import without_name_server
from notebook_accel.launch.system.own_process import die_with_parent
from notebook_accel.launch.wire.stream import Channel


def main(fd: int) -> None:
    """Serves until the fork server closes the channel: `open` takes over a listener and joins the nodes."""
    die_with_parent(os.getppid())  # during torch's import, nothing reads the channel or sees it close
    limits.raise_file_limit_fully()  # every rank of every node connects
    start_guard()
    channel = Channel(socket.socket(fileno=fd))
    stores: dict[int, Any] = {}
    closed: dict[int, threading.Event] = {}
    for message in channel.messages():
        group = message.header["group"]
        if message.header["op"] == "close":
            stores.pop(group, None)
            closed.pop(group, threading.Event()).set()  # the thread that joins the nodes lets go of the store too
            continue
        if message.fds:
            try:
                stores[group] = host(message.header, message.fds[0])
            except Exception as error:  # torch can't be imported, for example
                reason = f"the ranks' rendezvous can't be opened: {type(error).__name__}: {error}"
                channel.send({"group": group, "error": reason})
                continue
        channel.send({"group": group, "opened": True})
        if message.header["num_nodes"] > 1:
            closed[group] = threading.Event()
            _start_to_join(channel, message.header, stores.get(group), closed[group])
    os._exit(0)


def host(request: dict[str, Any], listener: int) -> Any:
    """Hosts the store, on node 0. This never waits, since the address is this node's own."""
    with garbage_collection.paused():
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

    listener, unguard = _guard(listener)
    with without_name_server(request["host"]):
        store = TCPStore(
            request["host"],
            request["port"],
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=listener,
            timeout=datetime.timedelta(seconds=request["join_timeout"]),
            use_libuv=True,
        )
    weakref.finalize(store, unguard).atexit = False
    return store


_own_guard: StoreGuard | None = None
"""The process that guards the stores of this one."""


def start_guard() -> None:
    """Starts the process that guards the stores of this one, where one is needed."""
    global _own_guard
    if _own_guard is None and store_guard.is_available():
        _own_guard = StoreGuard()


def end_guard() -> None:
    """Ends the process that guards the stores of this one."""
    global _own_guard
    if _own_guard is not None:
        _own_guard.close()
        _own_guard = None


def _guard(listener: int) -> tuple[int, Callable[[], object]]:
    """The listener for the store itself, and what ends its guard.

    A store on a network has no guard, and neither has one where the system can't tell the users of connections apart,
    or refuses socket filters.
    """
    global _own_guard
    start_guard()
    if _own_guard is None or not _is_loopback(listener):
        return listener, int
    try:
        return _own_guard.guard(listener)
    except ConnectionError:  # it was killed
        _own_guard.close()
        _own_guard = StoreGuard()
        return _own_guard.guard(listener)


def _is_loopback(listener: int) -> bool:
    with socket.socket(fileno=os.dup(listener)) as same:
        return str(same.getsockname()[0]).startswith("127.")


def _start_to_join(channel: Channel, request: dict[str, Any], store: Any, closed: threading.Event) -> None:
    """Joins the other nodes in a thread, and sends the fork server the error, if any."""

    def join() -> None:
        error = rendezvous.join(request, store, closed)
        if error is not None:
            channel.send({"group": request["group"], "error": error})

    threading.Thread(target=join, daemon=True).start()
