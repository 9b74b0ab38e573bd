"""Watches the files to which a node's ranks write their stacks, on a crash or on request."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

_INTERVAL = 0.02
_TIMEOUT = 2.0
"""How many seconds a rank has to write."""
_MOST = 2**20


class StackFiles:
    """Sends the content of the files whenever it changes.

    Args:
        send: Called with a local rank and the content of its file.
    """

    def __init__(self, send: Callable[[int, bytes], object]) -> None:
        self._on_change = send
        self._fds: dict[int, int] = {}
        self._sent_size: dict[int, int] = {}
        """How many bytes of each file have been sent."""
        self._until: dict[int, float] = {}
        """Until when each file is checked."""

    def add(self, rank: int, fd: int) -> None:
        """Adds the file of a rank."""
        self._fds[rank] = fd
        self._sent_size[rank] = 0

    def expect(self, rank: int) -> None:
        """Empties the file of a rank that is about to write its stacks again."""
        if rank in self._fds:
            os.ftruncate(self._fds[rank], 0)
            os.lseek(self._fds[rank], 0, os.SEEK_SET)  # the rank writes through the same open file
            self._sent_size[rank] = 0
            self._until[rank] = time.monotonic() + _TIMEOUT

    def pause(self) -> float:
        """Seconds until `check` has something to do."""
        return _INTERVAL if self._until else _TIMEOUT

    def check(self) -> None:
        """Sends new content."""
        now = time.monotonic()
        for rank, until in list(self._until.items()):
            self.send(rank)
            if now > until:
                del self._until[rank]

    def send(self, rank: int) -> None:
        """Sends the content of a rank's file if it has changed."""
        if rank not in self._fds:
            return
        size = os.fstat(self._fds[rank]).st_size
        if size != self._sent_size[rank]:
            self._sent_size[rank] = size
            self._on_change(rank, os.pread(self._fds[rank], _MOST, 0))

    def close(self) -> None:
        """Closes all."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()
        self._until.clear()
