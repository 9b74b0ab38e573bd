"""The files that the ranks of a machine write their stacks to, when they crash or are told to."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

_LOOK = 0.02
_PATIENCE = 2.0
"""Seconds that a rank has to write."""
_MOST = 2**20


class StackFiles:
    """Tells what they hold when that changes.

    Args:
        tell: Is given a rank, by its number on this machine, and what its file holds.
    """

    def __init__(self, tell: Callable[[int, bytes], object]) -> None:
        self._tell = tell
        self._fds: dict[int, int] = {}
        self._told: dict[int, int] = {}
        """How much of each file has been told."""
        self._until: dict[int, float] = {}
        """Until when each file is looked at."""

    def add(self, rank: int, fd: int) -> None:
        """The file of a rank."""
        self._fds[rank] = fd
        self._told[rank] = 0

    def expect(self, rank: int) -> None:
        """A rank is about to write all anew."""
        if rank in self._fds:
            os.ftruncate(self._fds[rank], 0)
            os.lseek(self._fds[rank], 0, os.SEEK_SET)  # the rank writes through the same open file
            self._told[rank] = 0
            self._until[rank] = time.monotonic() + _PATIENCE

    def pause(self) -> float:
        """Seconds until `look` has something to do."""
        return _LOOK if self._until else _PATIENCE

    def look(self) -> None:
        """Tells what has been written."""
        now = time.monotonic()
        for rank, until in list(self._until.items()):
            self.tell(rank)
            if now > until:
                del self._until[rank]

    def tell(self, rank: int) -> None:
        """Tells what a rank's file holds, if that is not known."""
        if rank not in self._fds:
            return
        size = os.fstat(self._fds[rank]).st_size
        if size != self._told[rank]:
            self._told[rank] = size
            self._tell(rank, os.pread(self._fds[rank], _MOST, 0))

    def close(self) -> None:
        """Closes all."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()
        self._until.clear()
