"""How many ranks this machine can hold at all, so that a number too large is refused before any is started.

And which limit it was, where one has stood in the way later.
"""

from __future__ import annotations

import errno
import math
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from notebook_accel.errors import ConfigurationError

_SURELY = 32
"""So many ranks fit anywhere; nothing is looked up for them."""
_DESCRIPTORS, _DESCRIPTORS_HERE = 4, 64
"""Open files of the launching process: for each rank its channel, its output and its stacks, and those beside them."""
_TASKS = 2
"""Threads of a rank that has nothing to do."""
_MEMORY = {"spawn": 150 * 10**6}
_MEMORY_OF_FORK = 10 * 10**6
"""Bytes that a rank has for itself before it does anything: one that is forked shares what the server has imported."""
_CGROUPS = Path("/sys/fs/cgroup")
_STRICT = 2
"""Of `vm.overcommit_memory`."""


def check(size: int, engine: str, told: str) -> None:
    """Refuses a number of ranks that this machine has no room for, whatever they do.

    Args:
        size: How many are wanted on this machine.
        engine: The name of what starts them, each as a process.
        told: Where the number comes from, as an error says it.

    Raises:
        ConfigurationError: There is no room for so many.
    """
    if size <= _SURELY:
        return
    most, why = min(_limits(_MEMORY.get(engine, _MEMORY_OF_FORK)), default=(size, ""))
    if size > most:
        raise ConfigurationError(
            f"{size} ranks{told} are more than this machine can hold: {why}. Ask for {most} at most; for each of its "
            f"{os.cpu_count()} CPUs one is usual"
        )


def explain_refusal(error: OSError) -> str:
    """Why the system has refused to start a process, as far as it can be told, and what to do about it."""
    if error.errno == errno.ENOMEM:
        why = "there is no memory left for it"
        if _number(Path("/proc/sys/vm/overcommit_memory")) == _STRICT:
            why = "the system promises no more memory than it has (vm.overcommit_memory=2)"
        advice = "Launch fewer ranks, free memory in this notebook and others, or allow more (vm.overcommit_ratio)."
    elif error.errno == errno.EAGAIN:
        why = next(_full(), "a limit of processes is reached")
        advice = "Launch fewer ranks, end processes that are no longer needed, or raise the limit."
    else:
        return str(error)
    return f"{error.strerror}: {why}. {advice}"


def _full() -> Iterator[str]:
    """The limits of processes that are reached."""
    for folder in _cgroups():
        most = _number(folder / "pids.max")
        if _number(folder / "pids.current", 0) >= most:
            yield (
                f"the control group may have {most:.0f} processes and threads (pids.max in {folder}; --pids-limit of "
                "Docker, TasksMax= of a service)"
            )
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if os.geteuid() and limit != resource.RLIM_INFINITY:
        yield f"this user may have {limit} processes and threads (ulimit -u)"
    now = _tasks() if sys.platform == "linux" else 0
    for name in ("pid_max", "threads-max"):
        if now >= (most := _number(Path("/proc/sys/kernel") / name)):
            yield f"the system may have {most:.0f} processes and threads (kernel.{name})"


def _tasks() -> int:
    """How many processes and threads the system has."""
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])


def _limits(memory: int) -> Iterator[tuple[int, str]]:
    """The most ranks that each resource allows, and what there is of it, in words."""
    free = _free_memory()
    yield (
        free // memory,
        f"{free / 1e9:.1f} GB of memory are free, and a rank takes {memory / 1e6:.0f} MB to begin with",
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    top = soft if hard == resource.RLIM_INFINITY else hard
    if hard != resource.RLIM_INFINITY:
        left = top - len(os.listdir("/dev/fd")) - _DESCRIPTORS_HERE
        yield max(0, left // _DESCRIPTORS), f"this process may open {top} files, and needs {_DESCRIPTORS} for each rank"
    tasks = _free_tasks()
    if tasks < math.inf:
        yield int(tasks // _TASKS), f"{tasks:.0f} more processes and threads are allowed, and a rank has {_TASKS}"


def _free_memory() -> int:
    """Bytes that this machine, or the container that this is, can still give."""
    import psutil

    free = psutil.virtual_memory().available
    # What a control group has used says little: files that are only kept in memory are part of it.
    limits = (_number(folder / name) for folder in _cgroups() for name in ("memory.max", "memory.limit_in_bytes"))
    return int(min([free, *limits]))


def _free_tasks() -> float:
    """How many more processes and threads the system and its control groups allow this user."""
    found = [_number(folder / "pids.max") - _number(folder / "pids.current", 0) for folder in _cgroups()]
    if sys.platform == "linux":
        found += [_number(Path("/proc/sys/kernel") / name) - _tasks() for name in ("pid_max", "threads-max")]
    if os.geteuid():  # it does not hold for the superuser
        limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        found += [] if limit == resource.RLIM_INFINITY else [limit]
    return max(0.0, min([math.inf, *found]))


def _cgroups() -> list[Path]:
    """The folders of the control groups that this process is in."""
    try:
        groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return []
    return [
        folder
        for _, controllers, path in groups
        for folder in (_CGROUPS / controllers / path.lstrip("/"), _CGROUPS / controllers)
    ]


def _number(file: Path, otherwise: float = math.inf) -> float:
    """What a file of the system says; there is no limit where there is no such file."""
    try:
        return float(file.read_text().strip().replace("max", "inf"))
    except (OSError, ValueError):
        return otherwise
