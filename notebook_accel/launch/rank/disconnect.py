"""Disconnects a rank from the others, which ends a collective that no signal can interrupt."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator

times_disconnected = 0
"""How often this rank has been disconnected. Persistent ranks compare it to see that they need a new process group."""


def disconnect() -> None:
    """Closes every connection that another process has made to this one.

    A gloo collective waits for other ranks in C++, where no interrupt reaches it, but a closed connection does. Every
    connection of a process group was accepted by one of its two ranks: once each rank has closed those that it
    accepted, all are closed. Those to the store stay open, since the ranks made them.
    """
    global times_disconnected
    times_disconnected += 1
    listening: set[int] = set()
    accepted: list[tuple[socket.socket, int]] = []
    with contextlib.ExitStack() as stack:
        for sock in _sockets():
            stack.enter_context(sock)
            with contextlib.suppress(OSError):
                port = sock.getsockname()[1]
                if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    listening.add(port)
                else:
                    accepted.append((sock, port))
        for sock, port in accepted:
            if port in listening:
                with contextlib.suppress(OSError):  # the other end has closed it
                    sock.shutdown(socket.SHUT_RDWR)


def _sockets() -> Iterator[socket.socket]:
    """A duplicate of each TCP socket of this process."""
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            sock = socket.socket(fileno=os.dup(int(name)))
            if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.type == socket.SOCK_STREAM:
                yield sock
            else:
                sock.close()
