"""Which process runs a job, and whether it still does."""

from __future__ import annotations

import functools
import os
import socket
from dataclasses import dataclass

_APART = 2.0
"""Seconds by which two processes of one number differ at least in when they began."""


@dataclass(frozen=True)
class Owner:
    """A process, told apart from a later one of the same number."""

    pid: int
    began: float
    """Seconds since the epoch."""
    host: str

    @classmethod
    def this(cls) -> Owner:
        return _process(os.getpid())

    @property
    def is_near(self) -> bool:
        """Whether it is, or was, on this machine: of others nothing is known."""
        return self.host == socket.gethostname()

    def is_alive(self) -> bool:
        """Whether the process has not ended; asked on its own machine."""
        import psutil

        try:
            process = psutil.Process(self.pid)
            return abs(process.create_time() - self.began) < _APART and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:  # it has gone, or is hidden from us, and so is another user's
            return False


@functools.cache  # asked at each launch
def _process(pid: int) -> Owner:
    import psutil

    return Owner(pid, psutil.Process(pid).create_time(), socket.gethostname())
