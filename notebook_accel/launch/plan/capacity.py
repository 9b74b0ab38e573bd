"""Computes how many ranks fit on this node, so that too large a number is refused before any rank starts."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.system import limits
from notebook_accel.launch.system.limits import free_memory, free_tasks
from notebook_accel.rank_spans import counted

_ALWAYS_FIT = 32
"""Up to this many ranks fit on any node; only open files are checked, of which a process may have very few."""
_DESCRIPTORS, _OWN_DESCRIPTORS = 4, 64
"""Open files of this process for each rank (its channel, output and stacks file), and a reserve for the rest."""
_LEAST_OWN_DESCRIPTORS = 4
"""The smallest such reserve with which a launch works: its journal, and its sockets other than those of ranks."""
_TASKS = 2
"""Threads of an idle rank."""
_MEMORY = {"spawn": 150 * 10**6, "torchrun": 150 * 10**6}
_MEMORY_OF_FORK = 10 * 10**6
"""Private memory of an idle rank, in bytes; a forked rank shares what the server has imported."""


def check(size: int, engine: str, source: str) -> None:
    """Refuses a number of ranks that would not fit on this node even if they were idle.

    Args:
        size: The number of ranks on this node.
        engine: The name of the engine, which starts each rank as a process.
        source: Where the number was set, for the error message.

    Raises:
        ConfigurationError: There are too many ranks for this node.
        LaunchError: This process has too many files open.
    """
    if size <= _ALWAYS_FIT:
        limits.check_files(_LEAST_OWN_DESCRIPTORS + _DESCRIPTORS * size)
        return
    most, why = min(_limits(_MEMORY.get(engine, _MEMORY_OF_FORK)), default=(size, ""))
    if size > most:
        raise ConfigurationError(
            f"{size} ranks{source} are more than this machine can hold: {why}. Use at most {most}; one for each of its "
            f"{os.cpu_count()} CPUs is usual"
        )


def crowding(size: int, cores: int, as_many: str) -> str:
    """A notice if ranks on the CPU have to share cores; empty if they don't.

    Args:
        size: The number of ranks.
        cores: The number of cores.
        as_many: The setting for as many ranks as cores, as the user writes it.
    """
    if size <= cores:
        return ""
    shared = f"{size} ranks share {counted(cores, 'CPU core')} and take turns"
    return f"{shared}, so more ranks don't make training faster: with {as_many}, each has a core"


def _limits(memory: int) -> Iterator[tuple[int, str]]:
    """For each resource, the most ranks that it allows and the reason, for the message."""
    free = free_memory()
    yield (
        free // memory,
        f"{free / 1e9:.1f} GB of memory are free, and each rank needs {memory / 1e6:.0f} MB to start",
    )
    files = limits.free_files()
    if files < math.inf:
        fit = max(0.0, files - _OWN_DESCRIPTORS) // _DESCRIPTORS
        yield int(fit), f"this process may open {files:.0f} more files and needs {_DESCRIPTORS} for each rank"
    tasks = free_tasks()
    if tasks < math.inf:
        yield int(tasks // _TASKS), f"{tasks:.0f} more processes and threads are allowed, and each rank needs {_TASKS}"
