"""A GPU that is not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class FakeGpu:
    """One GPU."""

    name: str
    total: int
    """Memory in bytes; 0 if it has none of its own."""
    held: Mapping[int, int] = field(default_factory=dict)
    """Bytes that each process holds, by its ID."""
    mode: int = 0
    """The number of its compute mode: 0 is the default, 2 PROHIBITED, 3 EXCLUSIVE_PROCESS."""
    slices: Sequence[FakeGpu] = ()
    """Its slices, if it is in MIG mode."""
    utilization: int = 0
    """Percent."""
    temperature: int = 35
    """Degrees Celsius."""
    power: int = 70
    """Watts."""
    power_limit: int = 700
    """Watts."""
    throttled: int = 0
    """Why its clock rate is reduced: bits of `nvmlClocksEventReasons`, or of AMD's `indep_throttle_status`."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Its counters, by field of NVML such as `NVML_FI_DEV_PCIE_REPLAY_COUNTER`, or by file of AMD's driver."""
