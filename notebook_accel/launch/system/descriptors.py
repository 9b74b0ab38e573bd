"""The open descriptors of this process."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator


def close_from(first: int) -> None:
    """Closes all descriptors from a number on.

    Unlike `os.closerange`, which on some builds of Python tries every number up to the limit, and in containers that is
    often a billion.
    """
    for number in _open():
        if number >= first:
            with contextlib.suppress(OSError):  # that of the listing itself
                os.close(number)


def tcp_sockets() -> Iterator[socket.socket]:
    """Each TCP socket of this process, under its own descriptor, which stays open."""
    for number in _open():
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                found = socket.socket(fileno=number)
                try:
                    if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
                        yield found
                finally:
                    found.detach()


def listens(each: socket.socket) -> bool:
    """Whether a socket accepts connections."""
    return bool(each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _open() -> list[int]:
    return [int(name) for name in os.listdir("/dev/fd")]
