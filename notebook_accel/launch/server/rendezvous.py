"""Joins the nodes of a launch in the store of node 0. Each node starts its ranks once all nodes have joined.

Nodes end a launch one after the other, so a node may begin the next launch while node 0 is still in the last one. At
the same port, it then finds the old store, which it recognizes by its own entry or by the store's end, and reconnects.
"""

from __future__ import annotations

import datetime
import threading
import time
import uuid
from typing import Any

_POLL_INTERVAL = 0.05
_LEAST_TIMEOUT = 0.1
"""The shortest timeout of a connection attempt, in seconds. For torch, zero would mean no timeout."""


class _StoreOfLastLaunch(Exception):
    """This node has already joined in this store, for an earlier launch."""


def join(request: dict[str, Any], store: Any, closed: threading.Event) -> str | None:
    """Joins the other nodes.

    Args:
        request: What the driver has sent: this node, the launch, and where node 0 has its store.
        store: The store itself, on node 0.
        closed: Set once the launch has ended on this node.

    Returns:
        An error message, or an empty string; `None` if the launch has ended before.
    """
    deadline = time.monotonic() + request["join_timeout"]
    entry = f"{request['driver']}/{uuid.uuid4().hex}"
    while not closed.is_set():
        try:
            joined = connect(request, deadline - time.monotonic()) if store is None else store
            return None if closed.is_set() else _join_in(joined, request, entry, deadline, closed)
        except _StoreOfLastLaunch:
            if time.monotonic() > deadline:
                return _is_taken(request)
        except Exception as error:
            # While node 0 does not listen yet, or its last store ends, torch raises a RuntimeError.
            is_final = store is not None or not isinstance(error, RuntimeError)
            if is_final or time.monotonic() > deadline:
                return (
                    f"the rendezvous of the machines at {request['host']}:{request['port']} failed: {error}\n"
                    "Check that the same launch runs on the machine with node_rank=0, and that this machine can reach "
                    "that port."
                )
        closed.wait(_POLL_INTERVAL)
    return None


def connect(request: dict[str, Any], timeout: float) -> Any:
    """Connects to the store of node 0, which may not listen yet."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    seconds = datetime.timedelta(seconds=max(timeout, _LEAST_TIMEOUT))
    return TCPStore(request["host"], request["port"], is_master=False, timeout=seconds)


def _join_in(store: Any, request: dict[str, Any], entry: str, deadline: float, closed: threading.Event) -> str | None:
    """Enters this node in the store, and waits for the others. Returns what `join` does."""
    node, nodes, size = request["node_rank"], request["num_nodes"], request["size"]
    key = f"notebook-accel/{request['run_id']}/{request['attempt']}"
    found = store.compare_set(f"{key}/node/{node}", "", entry).decode()
    if found != entry:
        if found.startswith(f"{request['driver']}/"):
            raise _StoreOfLastLaunch
        return _is_taken(request)
    store.set(f"{key}/size/{node}", str(size))
    missing = list(range(nodes))
    while missing := [other for other in missing if not store.check([f"{key}/size/{other}"])]:
        if time.monotonic() > deadline:
            names = ", ".join(map(str, missing))
            return (
                f"the machines with node_rank {names} have not joined within {request['join_timeout']:.0f} s. Start "
                "the same launch there, with the same master_addr, use_port, num_nodes and rdzv_id."
            )
        if closed.wait(_POLL_INTERVAL):
            return None
    sizes = [int(store.get(f"{key}/size/{other}")) for other in range(nodes)]
    # The store ends with the launch of node 0, which therefore begins once every other node has read the sizes.
    readers = store.add(f"{key}/readers", 1)
    while node == 0 and readers < nodes and time.monotonic() < deadline and not closed.wait(_POLL_INTERVAL):
        readers = store.add(f"{key}/readers", 0)
    if set(sizes) != {size}:
        return f"the machines start different numbers of ranks, {sizes}: give all the same num_processes"
    return ""


def _is_taken(request: dict[str, Any]) -> str:
    return f"another machine has already joined with node_rank={request['node_rank']}: give each machine its own"
