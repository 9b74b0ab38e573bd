"""Processes as the system sees them."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable, Sequence

import psutil


def outlive(pids: Iterable[int], seconds: float = 45.0) -> list[int]:
    """Waits for the end of processes, whoever their parent is; returns those that have not ended in time."""
    deadline = time.monotonic() + seconds
    return [pid for pid in pids if not _ends(pid, deadline)]


def _ends(pid: int, deadline: float) -> bool:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0])
    finally:
        os.close(fd)


def alive(pids: Sequence[int]) -> list[int]:
    return outlive(pids, 0.0)


def descendants(pid: int | None = None) -> set[int]:
    """All that a process has started, zombies not counted."""
    found = psutil.Process(pid).children(recursive=True)
    return {process.pid for process in found if psutil.pid_exists(process.pid) and _is_alive(process)}


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def descriptors(pid: int | str = "self") -> int:
    """How many files a process holds open."""
    return len(os.listdir(f"/proc/{pid}/fd"))
