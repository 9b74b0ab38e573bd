"""What each rank has for itself, where several ranks may be threads of one process.

Usually a process is one rank, and all its threads share one space. Where torch_xla runs a rank for each core of a chip
on a thread, each of these threads enters a space of its own, and the threads that it starts come along.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

_of_process: dict[str, Any] = {}
_here = threading.local()
_is_shared = False
"""Whether this process has more than one rank. Where it has not, to look into `_here` takes most of a report's time."""


def space() -> dict[str, Any]:
    """What belongs to the rank of this thread, by name; who puts something in names it after its own module."""
    if not _is_shared:
        return _of_process
    found: dict[str, Any] = getattr(_here, "space", _of_process)
    return found


def enter(space: dict[str, Any]) -> None:
    """Gives this thread, and those that it will start, a space of its own."""
    global _is_shared  # one process has ranks on threads, or is one rank
    _here.space = space
    _is_shared = True
    _inherit()


def _inherit() -> None:
    """Has each thread of this process begin in the space of the one that starts it."""
    original = threading.Thread.start
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def start(self: threading.Thread) -> None:
        own, run = space(), self.run

        def run_there() -> None:
            _here.space = own
            run()

        self.run = run_there  # type: ignore[method-assign]
        original(self)

    threading.Thread.start = start  # type: ignore[method-assign]
