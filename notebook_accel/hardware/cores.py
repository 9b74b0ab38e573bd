"""Counts the cores that this process may use, and lists the CPU as the device that every machine has."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from notebook_accel.hardware.device_probe import Device, DeviceUse
from notebook_accel.rank_spans import counted

CPU = "cpu"
"""What identifies the CPU: the cores of a machine are one device."""


@dataclass(frozen=True)
class CpuProbe:
    """Counts the cores, and reads the size of the memory."""

    vendor: str = ""

    def devices(self) -> Sequence[Device]:
        import psutil

        count = usable()
        return (Device(f"CPU, {counted(count, 'core')}", CPU, psutil.virtual_memory().total),)

    def use(self) -> dict[str, DeviceUse]:
        import psutil

        return {CPU: DeviceUse(psutil.virtual_memory().used)}


def usable() -> int:
    """Physical cores, within this process's affinity and its container's quota; at least 1."""
    import psutil  # slow to import, but only launches need it

    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count() or 1
    found = max(1, allowed // threads_per_core())
    quota = container_quota()
    return max(1, min(found, int(quota))) if quota else found


@functools.cache
def threads_per_core() -> int:
    """Logical cores per physical core; 1 if that is not known."""
    import psutil

    logical = psutil.cpu_count() or 1
    return max(1, logical // (psutil.cpu_count(logical=False) or logical))


def container_quota() -> float | None:
    """The number of CPUs that the control group allows, if it limits them."""
    try:
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return None
    return None if limit == "max" else int(limit) / int(period)
