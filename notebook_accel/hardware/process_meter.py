"""Measures the CPU time and the memory of processes, and of those that they have started, from outside."""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class ProcessReading:
    """A process, and its descendants such as the workers of a DataLoader."""

    cpu: float
    """Percent of one core since the last reading; 0 at the first."""
    resident: int
    """Bytes."""
    children: int = 0
    children_cpu: float = 0.0
    children_resident: int = 0
    """Bytes; memory that they share with the process or each other is counted in each."""


@dataclass(frozen=True)
class _Sample:
    cpu_seconds: float
    resident: int


class ProcessMeter:
    """Measures several processes at once; opens and starts nothing in them."""

    def __init__(self) -> None:
        self._last: dict[int, float] = {}
        """The CPU seconds of each process at the last reading."""
        self._at = 0.0

    def read(self, pids: Iterable[int]) -> dict[int, ProcessReading]:
        """Measures processes, and leaves out those that no longer exist."""
        now = time.monotonic()
        elapsed, before, self._at = now - self._at, self._last, now
        self._last, found = {}, {}
        for pid in pids:
            own = _sample(pid)
            if own is None:
                continue
            below = {child: sample for child in _descendants(pid) if (sample := _sample(child)) is not None}
            self._last |= {each: sample.cpu_seconds for each, sample in {pid: own, **below}.items()}

            def share(each: int, sample: _Sample) -> float:
                return 100 * max(0.0, sample.cpu_seconds - before.get(each, sample.cpu_seconds)) / elapsed

            found[pid] = ProcessReading(
                share(pid, own),
                own.resident,
                len(below),
                sum(share(child, sample) for child, sample in below.items()),
                sum(sample.resident for sample in below.values()),
            )
        return found


def _descendants(pid: int) -> Iterator[int]:
    for child in _children(pid):
        yield child
        yield from _descendants(child)


if sys.platform == "linux":
    _TICK = 1 / os.sysconf("SC_CLK_TCK")

    def _sample(pid: int) -> _Sample | None:
        try:
            fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        except OSError:
            return None
        # utime, stime, and rss are the fields 14, 15, and 24 of proc(5); those before the ")" are two.
        return _Sample((int(fields[11]) + int(fields[12])) * _TICK, int(fields[21]) * mmap.PAGESIZE)

    def _children(pid: int) -> list[int]:
        """Those that any thread of the process has started."""
        found: list[int] = []
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError):  # the thread has ended
                    found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
        return found

    def _read(path: str) -> bytes:
        """A small file, without a file object, which takes several times as long."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(fd, 2**16)
        finally:
            os.close(fd)

else:
    import psutil

    def _sample(pid: int) -> _Sample | None:
        try:
            process = psutil.Process(pid)
            times = process.cpu_times()
            return _Sample(times.user + times.system, process.memory_info().rss)
        except psutil.Error:
            return None

    def _children(pid: int) -> list[int]:
        try:
            return [child.pid for child in psutil.Process(pid).children()]
        except psutil.Error:
            return []
