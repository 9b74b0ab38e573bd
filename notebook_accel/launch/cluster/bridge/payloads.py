"""The memory files that bring a call's large data, which are read and sent to the nodes once."""

from __future__ import annotations

import os

_MOST_AT_ONCE = 2**30
"""Bytes; one call reads 2 GB at most."""


class Payloads:
    """The memory file of a group's latest call."""

    def __init__(self) -> None:
        self._latest: tuple[int, int] | None = None
        self._held: int | None = None
        """The file's descriptor, kept open so that no other file gets its inode number."""

    def take(self, fd: int) -> bytes | None:
        """Takes a file's descriptor; returns the content, or `None` if the nodes already have the file."""
        stat = os.fstat(fd)
        if (stat.st_dev, stat.st_ino) == self._latest:
            os.close(fd)
            return None
        self.close()
        self._held, self._latest = fd, (stat.st_dev, stat.st_ino)
        return _read(fd, stat.st_size)

    def close(self) -> None:
        """Closes it."""
        if self._held is not None:
            os.close(self._held)
            self._held = None


def _read(fd: int, size: int) -> bytes:
    if size < _MOST_AT_ONCE:
        return os.pread(fd, size, 0)
    return b"".join(os.pread(fd, _MOST_AT_ONCE, at) for at in range(0, size, _MOST_AT_ONCE))
