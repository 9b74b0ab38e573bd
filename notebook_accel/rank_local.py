"""State of each rank, also where several ranks are threads of one process.

Usually a process is one rank, and all its threads share one space. Where torch_xla runs a rank for each core of a chip
on a thread, each of these threads enters a space of its own, and the threads that it starts come along.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

_of_process: dict[str, Any] = {}
_here = threading.local()
alone: dict[str, Any] | None = _of_process
"""The space of the only rank of this process; `None` if it has several. `alone or space()` is the fastest access."""


def space() -> dict[str, Any]:
    """The state of this thread's rank, by name. Callers prefix their names with that of their module."""
    if alone is not None:
        return alone
    found: dict[str, Any] = getattr(_here, "space", _of_process)
    return found


def enter(space: dict[str, Any]) -> None:
    """Gives this thread, and the threads that it starts, a space of their own."""
    global alone  # one process has ranks on threads, or is one rank
    _here.space = space
    alone = None
    _inherit()


def _inherit() -> None:
    """Makes each new thread of this process use the space of the thread that starts it."""
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
