"""Counts the cores that this process may use."""

from __future__ import annotations

import functools
import os
from pathlib import Path


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
