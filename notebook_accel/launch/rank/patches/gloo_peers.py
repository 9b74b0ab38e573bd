"""Checks who has connected to a rank's gloo groups, since gloo has no authentication.

Gloo listens on the loopback interface while ranks connect to each other, and the process that connects first with the
number of a rank is that rank. The addresses are in the store, which other users can't read, but the system tells
everyone which ports are listened on. So each new group is checked before anything is received over it. No rank
continues before all have checked, since a rank that closes its group takes the evidence of who it was with it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from typing import Any

from notebook_accel.launch.system.connection_owner import OwnerQuery, is_known
from notebook_accel.store_barrier import await_all


def install() -> None:
    """Patches torch's creation of process groups, if torch has been imported and this has not been done."""
    c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None or not is_known():
        return
    create: Callable[..., Any] = c10d._new_process_group_helper
    if hasattr(create, "_accel_patched"):
        return

    def create_and_check(*args: Any, **kwargs: Any) -> Any:
        before = _listening_ports()
        created = create(*args, **kwargs)
        check(_listening_ports() - before)
        group, store = created
        is_gloo = group is not c10d.GroupMember.NON_GROUP_MEMBER and "gloo" in c10d.get_backend_config(group)
        if is_gloo and _is_on_one_machine():  # on several, gloo does not use the loopback interface
            await_all(store, "checked", group.size())
        return created

    create_and_check._accel_patched = True  # type: ignore[attr-defined]
    c10d._new_process_group_helper = create_and_check


def check(ports: set[int]) -> None:
    """Checks the connections that this process has accepted at ports of the loopback interface.

    Raises:
        RuntimeError: One of them is not from a process of this user.
    """
    if not ports:
        return
    with contextlib.closing(OwnerQuery()) as owners:
        for each in tcp_sockets():
            host, port = each.getsockname()[:2]
            if port in ports and host.startswith("127.") and not listens(each) and not owners.is_own(each):
                raise RuntimeError(
                    "one of this rank's connections to other ranks does not belong to a process of this user: the "
                    "connection was closed because a rank has ended, or another user's process has connected"
                )


def _is_on_one_machine() -> bool:
    return os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE")


def _listening_ports() -> set[int]:
    return {each.getsockname()[1] for each in tcp_sockets() if listens(each)}


def listens(each: socket.socket) -> bool:
    """Whether a socket accepts connections."""
    return bool(each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def tcp_sockets() -> Iterator[socket.socket]:
    """The IPv4 sockets of this process, which stay open."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                found = socket.socket(fileno=int(name))
                try:
                    if found.family == socket.AF_INET and found.type == socket.SOCK_STREAM:
                        yield found
                finally:
                    found.detach()
