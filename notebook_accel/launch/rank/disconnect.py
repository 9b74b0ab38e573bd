"""Disconnects a rank from the others, which ends a collective that no signal can interrupt."""

from __future__ import annotations

import contextlib
import socket

from notebook_accel.launch.rank.patches import gloo_peers
from notebook_accel.launch.system.limits import listens, tcp_sockets

times_disconnected = 0
"""How often this rank has been disconnected. Persistent ranks compare it to see that they need a new process group."""


def disconnect() -> None:
    """Closes every connection of torch's gloo groups that another process has made to this one.

    A gloo collective waits for other ranks in C++, where no interrupt reaches it, but a closed connection does. Every
    connection of a process group was accepted by one of its two ranks: once each rank has closed those that it
    accepted, all are closed. Those of other servers in this process stay open.
    """
    global times_disconnected
    times_disconnected += 1
    for each in tcp_sockets():
        with contextlib.suppress(OSError):  # the other end has closed it
            if each.getsockname()[1] in gloo_peers.ports and not listens(each):
                each.shutdown(socket.SHUT_RDWR)
