"""Measures the CPU, the memory, and the disks of this machine."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_SHARED_MEMORY = "/dev/shm"
_FIRST_SECONDS = 0.1
"""What the CPU did is known only from two moments; the system counts in hundredths of a second."""


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

    cpu: float
    """Percent of all cores since the last reading, and at the first one, in a tenth of a second before it."""
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
        self._last: tuple[float, float] | None = None
        """What had been counted at the last reading."""

    def read(self) -> HostReading:
        """Measures now. The first reading takes a tenth of a second."""
        before = self._last
        if before is None:
            before = _cpu_seconds()
            time.sleep(_FIRST_SECONDS)
        self._last = _cpu_seconds()
        busy, total = (now - then for now, then in zip(self._last, before, strict=True))
        cpu = 100 * min(1.0, max(0.0, busy / total)) if total > 0 else 0.0  # the difference of rounded seconds
        return HostReading(cpu, os.cpu_count() or 1, dict(self._spaces()))

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
