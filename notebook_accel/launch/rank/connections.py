"""The connections between the ranks of one machine. Runs in the rank."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator

times_severed = 0
"""How often this rank was told to cut them."""


def disconnect() -> None:
    """Cuts every connection that another process has made to this one.

    A collective of gloo that waits for another rank waits in C++, where no interrupt reaches it; a connection that ends
    does. Every connection of a group was accepted by one of its two ranks, so when each rank cuts those that it has
    accepted, all are cut. The store's connections are not: it was the ranks that have made them.
    """
    global times_severed
    times_severed += 1
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
                with contextlib.suppress(OSError):  # the other side has closed it
                    sock.shutdown(socket.SHUT_RDWR)


def _sockets() -> Iterator[socket.socket]:
    """A second hold on each TCP socket of this process."""
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            sock = socket.socket(fileno=os.dup(int(name)))
            if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.type == socket.SOCK_STREAM:
                yield sock
            else:
                sock.close()
