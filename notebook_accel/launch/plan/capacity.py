"""How many ranks this machine can hold at all, so that a number too large is refused before any is started.

And which limit it was, where one has stood in the way later.
"""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Iterator

from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.system.limits import free_memory, free_tasks

_SURELY = 32
"""So many ranks fit anywhere; nothing is looked up for them."""
_DESCRIPTORS, _DESCRIPTORS_HERE = 4, 64
"""Open files of the launching process: for each rank its channel, its output and its stacks, and those beside them."""
_TASKS = 2
"""Threads of a rank that has nothing to do."""
_MEMORY = {"spawn": 150 * 10**6}
_MEMORY_OF_FORK = 10 * 10**6
"""Bytes that a rank has for itself before it does anything: one that is forked shares what the server has imported."""


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


def _limits(memory: int) -> Iterator[tuple[int, str]]:
    """The most ranks that each resource allows, and what there is of it, in words."""
    free = free_memory()
    yield (
        free // memory,
        f"{free / 1e9:.1f} GB of memory are free, and a rank takes {memory / 1e6:.0f} MB to begin with",
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    top = soft if hard == resource.RLIM_INFINITY else hard
    if hard != resource.RLIM_INFINITY:
        left = top - len(os.listdir("/dev/fd")) - _DESCRIPTORS_HERE
        yield max(0, left // _DESCRIPTORS), f"this process may open {top} files, and needs {_DESCRIPTORS} for each rank"
    tasks = free_tasks()
    if tasks < math.inf:
        yield int(tasks // _TASKS), f"{tasks:.0f} more processes and threads are allowed, and a rank has {_TASKS}"
