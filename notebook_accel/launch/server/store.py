"""The process that hosts the rendezvous stores of all groups.

A store has threads, so it must not run in the process that forks ranks. It takes over a socket that already listens on
one IPv4 address. By default, torch's store listens on every interface, dual-stack, and looks up the name of every
client, which can mean waiting for a name server (see `system/resolver.py`).
"""

from __future__ import annotations

import datetime
import os
import socket
import threading
import time
from typing import Any

from notebook_accel.launch.system import open_file_limit
from notebook_accel.launch.system.libc import die_with_parent
from notebook_accel.launch.system.name_resolution import without_name_server
from notebook_accel.launch.wire.stream import Channel

_POLL_INTERVAL = 0.2


def main(fd: int) -> None:
    """Serves until the fork server closes the channel: `open` takes over a listener and joins the nodes."""
    die_with_parent(os.getppid())  # during torch's import, nothing reads the channel or sees it close
    open_file_limit.raise_to_hard_limit()  # every rank of every node connects
    channel = Channel(socket.socket(fileno=fd))
    stores: dict[int, Any] = {}
    for message in channel.messages():
        group = message.header["group"]
        if message.header["op"] == "close":
            stores.pop(group, None)
            continue
        if message.fds:
            stores[group] = host(message.header, message.fds[0])
        if message.header["num_nodes"] > 1:
            threading.Thread(target=_rendezvous, args=(channel, message.header, stores.get(group)), daemon=True).start()
    os._exit(0)


def host(request: dict[str, Any], listener: int) -> Any:
    """Hosts the store, on node 0. This never waits, since the address is this node's own."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    with without_name_server(request["host"]):
        return TCPStore(
            request["host"],
            request["port"],
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=listener,
            timeout=datetime.timedelta(seconds=request["join_timeout"]),
            use_libuv=True,
        )


def _rendezvous(channel: Channel, request: dict[str, Any], store: Any) -> None:
    """Joins the other nodes in the store, and sends the fork server the error, if any."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    try:
        if store is None:
            timeout = datetime.timedelta(seconds=request["join_timeout"])
            store = TCPStore(request["host"], request["port"], is_master=False, timeout=timeout)
        error = _wait_for_nodes(store, request)
    except Exception as failure:
        error = (
            f"the rendezvous of the machines at {request['host']}:{request['port']} failed: {failure}\nCheck that the "
            "same launch runs on the machine with node_rank=0, and that this machine can reach that port."
        )
    channel.send({"group": request["group"], "error": error})


def _wait_for_nodes(store: Any, request: dict[str, Any]) -> str:
    """Waits until every node has joined; returns an error message, or an empty one."""
    node, nodes, size = request["node_rank"], request["num_nodes"], request["size"]
    key = f"notebook-accel/{request['run_id']}/{request['attempt']}"
    if store.add(f"{key}/taken/{node}", 1) > 1:
        return f"another machine has already joined with node_rank={node}: give each machine its own number"
    store.set(f"{key}/size/{node}", str(size))
    deadline = time.monotonic() + request["join_timeout"]
    missing = list(range(nodes))
    while missing := [other for other in missing if not store.check([f"{key}/size/{other}"])]:
        if time.monotonic() > deadline:
            names = ", ".join(map(str, missing))
            return (
                f"the machines with node_rank {names} have not joined within {request['join_timeout']:.0f} s. Start "
                "the same launch there, with the same master_addr, use_port, num_nodes and rdzv_id."
            )
        time.sleep(_POLL_INTERVAL)
    sizes = [int(store.get(f"{key}/size/{other}")) for other in range(nodes)]
    if set(sizes) != {size}:
        # The store ends with node 0, which therefore waits until every other node has read the sizes.
        readers = store.add(f"{key}/heard", 1)
        while node == 0 and readers < nodes and time.monotonic() < deadline:
            time.sleep(_POLL_INTERVAL)
            readers = store.add(f"{key}/heard", 0)
        return f"the machines start different numbers of ranks, {sizes}: give all the same num_processes"
    return ""
