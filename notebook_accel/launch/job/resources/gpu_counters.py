"""Turns readings of GPUs into what users see, with the errors since the first reading."""

from __future__ import annotations

from collections.abc import Mapping

from notebook_accel.events import GpuUsage
from notebook_accel.hardware import GpuReading


class GpuCounters:
    """Remembers the error counters of each GPU at its first reading."""

    def __init__(self) -> None:
        self._before: dict[str, Mapping[str, int]] = {}

    def usage(self, uuid: str, reading: GpuReading) -> GpuUsage:
        """What a reading says, with the errors that have occurred since the first reading of this GPU."""
        before = self._before.setdefault(uuid, reading.errors)
        risen = {name: count - before.get(name, 0) for name, count in reading.errors.items()}
        values = {name: value for name, value in vars(reading).items() if name not in ("name", "errors")}
        return GpuUsage(**values, errors={name: count for name, count in risen.items() if count > 0})
