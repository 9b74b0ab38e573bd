"""Which process runs a job, and whether it still does."""

from __future__ import annotations

import functools
import os
import socket
from dataclasses import dataclass


@dataclass(frozen=True)
class Owner:
    """A process, told apart from a later one of the same number, however the clock is set meanwhile."""

    pid: int
    began: int
    """When it began, as its system counts: on Linux the ticks since the system has started."""
    system: str
    """What gives processes their numbers: one start of a machine and, on Linux, one namespace there."""

    @classmethod
    def this(cls) -> Owner:
        return cls.of(os.getpid())

    @staticmethod
    @functools.cache  # asked at each launch
    def of(pid: int) -> Owner:
        """A process of this machine, which must be there."""
        began = _began(pid)
        assert began is not None, f"there is no process {pid}"
        return Owner(pid, began, _system())

    @property
    def is_local(self) -> bool:
        """Whether its number means here what it means there: of others nothing is known."""
        return self.system == _system()

    def is_alive(self) -> bool:
        """Whether the process has not ended; asked where it is near."""
        return _began(self.pid) == self.began


def _began(pid: int) -> int | None:
    """When a process began; `None` if it has ended, or is hidden from us, and so is another user's."""
    if os.path.exists("/proc/self/stat"):
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()  # its name may have blanks and brackets
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if fields[0] in (b"Z", b"X") else int(fields[19])
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else round(process.create_time() * 1e6)
    except psutil.Error:
        return None


@functools.cache
def _system() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()
