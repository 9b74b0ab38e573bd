"""Wakes a thread that waits for sockets and pipes, from other threads and from signal handlers."""

from __future__ import annotations

import contextlib
import socket


class Wakeup:
    """Becomes readable once another thread calls `wake`.

    It takes no lock, since a signal handler may run while its own thread holds it. Nor does it write to a descriptor by
    its number, which may belong to another file once this is closed.
    """

    def __init__(self) -> None:
        self._read_end, self._write_end = socket.socketpair()
        self._read_end.setblocking(False)
        self._write_end.setblocking(False)

    def fileno(self) -> int:
        return self._read_end.fileno()

    def wake(self) -> None:
        """Makes it readable. Any thread may call this at any time; it does nothing once this is closed."""
        with contextlib.suppress(OSError):  # it is closed, or so full that it is readable anyway
            self._write_end.send(b"+")

    def clear(self) -> None:
        """Makes it unreadable until the next `wake`."""
        with contextlib.suppress(BlockingIOError):
            while self._read_end.recv(4096):
                pass

    def close(self) -> None:
        self._read_end.close()
        self._write_end.close()
