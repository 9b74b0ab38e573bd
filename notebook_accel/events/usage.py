"""What a rank uses, read from outside the rank by the process that shows the job. It isn't recorded in the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from notebook_accel.events.base import Event


@dataclass(frozen=True)
class ProcessUsage(Event):
    """The CPU time and memory of a rank's process and of its child processes, such as the workers of a loader."""

    kind = "process usage"
    cpu: float
    """Percent of one core."""
    resident: int
    """Bytes."""
    children: int = 0
    """How many processes it has started, with those that these have started."""
    children_cpu: float = 0.0
    children_resident: int = 0


@dataclass(frozen=True)
class GpuUsage(Event):
    """What the driver measures on the GPU of a rank, for all processes together; `None` if it doesn't."""

    kind = "gpu usage"
    utilization: float | None = None
    """Percent of the time in which a kernel ran."""
    memory_used: int | None = None
    """Bytes."""
    memory_total: int | None = None
    """Bytes."""
    temperature: float | None = None
    """Degrees Celsius."""
    power: float | None = None
    """Watts."""
    power_limit: float | None = None
    """Watts."""
    throttled: Sequence[str] = ()
    """Why its clock rate is reduced: constants of `hardware/sensors/gpu_readings.py`."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Errors since the job was first shown, by what they are; without those that haven't occurred."""
