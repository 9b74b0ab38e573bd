"""Identifies the process that runs a job or a server, and tells whether it still exists."""

from __future__ import annotations

import functools
import os
import socket
from dataclasses import dataclass


@dataclass(frozen=True)
class Owner:
    """A process, distinguished from a later one with the same ID, even if the clock was set in between."""

    pid: int
    began: int
    """When it began, on a clock of its system: on Linux in ticks since the boot."""
    system: str
    """The scope in which its process ID is unique: one boot of a machine and, on Linux, one PID namespace."""

    @classmethod
    def this(cls) -> Owner:
        return cls.of(os.getpid())

    @staticmethod
    @functools.cache  # called at each launch
    def of(pid: int) -> Owner:
        """A process of this machine, which must exist."""
        began = _began(pid)
        assert began is not None, f"there is no process {pid}"
        return Owner(pid, began, _system())

    @classmethod
    def parse(cls, text: str) -> Owner:
        """The process whose `str()` this is.

        Raises:
            ValueError: The text is not one.
        """
        pid, began, system = text.split(" ", 2)
        return cls(int(pid), int(began), system)

    def __str__(self) -> str:
        return f"{self.pid} {self.began} {self.system}"

    @property
    def is_local(self) -> bool:
        """Whether it is of this system. Whether a process of another one exists cannot be known here."""
        return self.system == _system()

    @property
    def shares_kernel(self) -> bool:
        """Whether it is of this boot of this machine, perhaps of another container there."""
        return self.system.partition(" ")[0] == _system().partition(" ")[0]

    def is_alive(self) -> bool:
        """Whether the process exists; meaningful only if it is local."""
        return _began(self.pid) == self.began


def _began(pid: int) -> int | None:
    """When a process began; `None` if it has ended, or is another user's and hidden."""
    if os.path.exists("/proc/self/stat"):
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()  # its name may contain blanks and brackets
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
