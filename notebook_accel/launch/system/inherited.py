"""What a process inherits from the one that starts it: what it can take on by itself, and what it can't."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Mapping
from typing import Any

_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")
_STATUS = (
    *("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"),
    *("NoNewPrivs", "Seccomp", "Seccomp_filters", "THP_enabled"),
    *("Cpus_allowed", "Mems_allowed"),  # libraries count the cores as they load
)
"""The lines of `/proc/self/status` that tell the rights of a process, and where it may run."""
_LIMITS = [value for name, value in sorted(vars(resource).items()) if name.startswith("RLIMIT_")]


def fixed() -> list[Any]:
    """What a process can't take on by itself, as JSON: rights, control groups, namespaces, priorities, hard limits."""
    status = _status()
    return [
        [status.get(name) for name in _STATUS],
        _read("cgroup"),
        [_link(f"ns/{name}") for name in _NAMESPACES],
        [_link("root"), _read("attr/current"), _read("personality"), _read("oom_score_adj")],
        [os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), _read("numa_maps", 256).split()[1:2]],
        [resource.getrlimit(each)[1] for each in _LIMITS],
    ]


def adjustable() -> dict[str, Any]:
    """What a process can take on by itself, as JSON, beside its environment and its working directory."""
    return {
        "umask": int(_status()["Umask"], 8),
        "limits": [resource.getrlimit(each)[0] for each in _LIMITS],
    }


def take_on(state: Mapping[str, Any], folder: int) -> None:
    """Takes on the `adjustable` state of another process, and its working directory, given by a descriptor.

    The environment must be in place: it has the time zone.
    """
    os.fchdir(folder)
    os.umask(state["umask"])
    for each, soft in zip(_LIMITS, state["limits"], strict=True):
        before, hard = resource.getrlimit(each)
        if soft != before:
            resource.setrlimit(each, (soft, hard))
    time.tzset()


def _status() -> dict[str, str]:
    lines = _read("status", 2**14).splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _read(name: str, most: int = 2**16) -> str:
    """A file of this process's folder; empty if this system does not have it, or does not show it."""
    with contextlib.suppress(OSError):
        fd = os.open(f"/proc/self/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(fd, most).decode(errors="replace")
        finally:
            os.close(fd)
    return ""


def _link(name: str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/self/{name}")
    return ""
