"""Measures the CPU, the memory, and the disks of this machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_SHARED_MEMORY = "/dev/shm"
_SHORTEST = 0.3
"""Seconds that a share of the CPU time is of, at least: the system counts it in hundredths."""


@dataclass(frozen=True)
class Space:
    """How much of something is in use."""

    used: int
    """Bytes."""
    total: int
    """Bytes."""


@dataclass(frozen=True)
class HostReading:
    """This machine at one moment."""

    cpu: float | None
    """Percent of all cores since the last reading that has it; `None` if that was just before."""
    cores: int
    """Logical cores."""
    spaces: Mapping[str, Space]
    """`memory`, and where they exist `/dev/shm` and `disk`."""


class HostMeter:
    """Measures this machine.

    Args:
        folder: A folder on the disk of interest.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last = _cpu_seconds()

    def read(self) -> HostReading:
        """Measures now."""
        cores, seconds, cpu = os.cpu_count() or 1, _cpu_seconds(), None
        busy, total = (now - then for now, then in zip(seconds, self._last, strict=True))
        if total >= _SHORTEST * cores:
            self._last, cpu = seconds, 100 * min(1.0, max(0.0, busy / total))  # the difference of rounded seconds
        return HostReading(cpu, cores, dict(self._spaces()))

    def _spaces(self) -> Iterator[tuple[str, Space]]:
        import psutil

        memory = psutil.virtual_memory()
        yield "memory", Space(memory.total - memory.available, memory.total)
        for name, path in (("/dev/shm", _SHARED_MEMORY), ("disk", self._folder)):
            with contextlib.suppress(OSError):
                found = os.statvfs(path)
                yield (
                    name,
                    Space((found.f_blocks - found.f_bfree) * found.f_frsize, found.f_blocks * found.f_frsize),
                )


def _cpu_seconds() -> tuple[float, float]:
    """Seconds for which all cores together were busy, and seconds in total."""
    import psutil

    times = psutil.cpu_times()
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # contained in `user` and `nice`
    total = sum(times) - guests
    return total - times.idle - getattr(times, "iowait", 0.0), total
