"""What the driver measures on a GPU, and the interface by which a vendor's measurements are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

TEMPERATURE, POWER_BRAKE, HARDWARE, POWER_LIMIT = "temperature", "power brake", "hardware", "power limit"
"""Why a GPU may run below its clock rate. The last one is normal: it is how drivers hold a GPU to its power limit."""


@dataclass(frozen=True)
class GpuReading:
    """One GPU at one moment. What the driver doesn't report is `None`."""

    name: str
    utilization: float | None = None
    """Percent of the last interval of the driver, up to a second, in which a kernel ran."""
    memory_used: int | None = None
    """Bytes that all processes together hold."""
    memory_total: int | None = None
    """Bytes."""
    temperature: float | None = None
    """Degrees Celsius."""
    power: float | None = None
    """Watts."""
    power_limit: float | None = None
    """Watts."""
    throttled: tuple[str, ...] = ()
    """Why its clock rate is reduced now: of the constants above."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Errors since the driver was loaded, by what they are."""


class Sensors(Protocol):
    """The measurements of all GPUs of one vendor. Reading them opens no GPU; the driver measures by itself."""

    def read(self) -> dict[str, GpuReading]:
        """Reads every GPU, by its UUID; slices of a GPU have their own. Takes milliseconds."""
        ...

    def close(self) -> None:
        """Releases the driver's library."""
        ...
