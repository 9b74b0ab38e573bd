"""Knows which connections are those of a rank's gloo groups, and checks who has made them.

Gloo has no authentication. It listens on the loopback interface while ranks connect to each other, and the process
that connects first with the number of a rank is that rank. The addresses are in the store, which other users can't
read, but the system tells everyone which ports are listened on. So each new group is checked before anything is
received over it. No rank continues before all have checked, since a rank that closes its group takes the evidence of
who it was with it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

from notebook_accel.launch.system.limits import listens, tcp_sockets
from notebook_accel.launch.system.network import OwnerQuery, knows_owners
from notebook_accel.launch.wire.mirrored.on_import import replace, when_imported
from notebook_accel.store_barrier import await_all

ports: set[int] = set()
"""Those at which this rank's gloo groups have accepted connections."""


def install() -> None:
    """Patches torch's creation of process groups once it is imported."""
    when_imported({"torch.distributed.distributed_c10d": _patch})


def _patch(c10d: Any) -> None:
    replace(c10d, "_new_process_group_helper", lambda create: _checked(c10d, create))


def _checked(c10d: Any, create: Callable[..., Any]) -> Callable[..., Any]:
    def create_and_check(*args: Any, **kwargs: Any) -> Any:
        before = _listening_ports()
        created = create(*args, **kwargs)
        opened = _listening_ports() - before
        ports.intersection_update(before)  # those of groups that are gone may now be another server's
        ports.update(opened)
        if not knows_owners():
            return created
        check(opened)
        group, store = created
        is_gloo = group is not c10d.GroupMember.NON_GROUP_MEMBER and "gloo" in c10d.get_backend_config(group)
        if is_gloo and _is_on_one_machine():  # on several, gloo does not use the loopback interface
            await_all(store, "checked", group.size())
        return created

    return create_and_check


def check(opened: set[int]) -> None:
    """Checks the connections that this process has accepted at ports of the loopback interface.

    Raises:
        RuntimeError: One of them is not from a process of this user.
    """
    if not opened:
        return
    with contextlib.closing(OwnerQuery()) as owners:
        for each in tcp_sockets():
            host, port = each.getsockname()[:2]
            if port in opened and host.startswith("127.") and not listens(each) and not owners.is_own(each):
                raise RuntimeError(
                    "one of this rank's connections to other ranks does not belong to a process of this user: the "
                    "connection was closed because a rank has ended, or another user's process has connected"
                )


def _is_on_one_machine() -> bool:
    return os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE")


def _listening_ports() -> set[int]:
    return {each.getsockname()[1] for each in tcp_sockets() if listens(each)}
