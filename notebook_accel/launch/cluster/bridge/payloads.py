"""Sends a call's memory file to every node once, whatever the number of ranks that receive it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

_MOST_AT_ONCE = 2**30
"""Bytes; one call reads 2 GB at most."""


class Payloads:
    """Of the calls of one group, the latest file.

    Args:
        share: Puts a blob where all machines get it from.
    """

    def __init__(self, share: Callable[[bytes], Any]) -> None:
        self._share = share
        self._latest: tuple[int, int] | None = None
        self._held: int | None = None
        """That file, so that no other gets its number."""

    def take(self, fd: int) -> Any:
        """What machines are to be told of a file, which is closed in time; `None` if it is the one that they have."""
        stat = os.fstat(fd)
        if (stat.st_dev, stat.st_ino) == self._latest:
            os.close(fd)
            return None
        self.close()
        self._held, self._latest = fd, (stat.st_dev, stat.st_ino)
        return self._share(_read(fd, stat.st_size))

    def close(self) -> None:
        """Closes it."""
        if self._held is not None:
            os.close(self._held)
            self._held = None


def _read(fd: int, size: int) -> bytes:
    if size < _MOST_AT_ONCE:
        return os.pread(fd, size, 0)
    return b"".join(os.pread(fd, _MOST_AT_ONCE, at) for at in range(0, size, _MOST_AT_ONCE))
