"""Tells that the user's code, or what it needs, is being imported, from the samples that `collective_wait.py` takes.

An import may take minutes, on a slow disk or of a large library, and ranks that wait for the one that imports would
look stalled. A line of the user's own module that runs while that is imported does not count as an import.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib import _bootstrap
from types import FrameType

from notebook_accel.events import Event, Phase, PhaseChanged
from notebook_accel.launch.rank.stacks import stack_sampler
from notebook_accel.launch.wire import stack_frames

REPORTED_AFTER = 0.5
"""Seconds from which on an import is reported."""
_INTERVAL = 1.0
"""Seconds between two reports that it makes progress, at least."""
_MOST_FRAMES = 1000
_IMPORT = _bootstrap._find_and_load.__code__  # type: ignore[attr-defined]
"""The code of the function that imports a module, for each module again."""


class ImportDetector:
    """Watches one thread, and reports when an import begins and ends, and that further modules have been imported.

    Args:
        phase: The phase that the rank is in besides.
    """

    def __init__(self, phase: Callable[[], Phase]) -> None:
        self._phase = phase
        self._import: tuple[int, str] | None = None
        """The frame of the import that was sampled last, as a number, and what it imports."""
        self._since = 0.0
        self._modules = 0
        self._reported: float | None = None
        """When it was reported last; `None` if it wasn't."""
        self._events: list[Event] = []

    def add(self, frame: FrameType) -> None:
        """Takes a sample: the innermost frame of the thread."""
        self._see(_outermost_import(frame), time.time())

    def take(self) -> list[Event]:
        """The events since the last time."""
        found, self._events = self._events, []
        return found

    def reset(self) -> None:
        """Forgets the import: the user's call has ended, which is an event of its own."""
        self._import, self._reported, self._events = None, None, []

    def _see(self, found: tuple[int, str] | None, now: float) -> None:
        if found != self._import:
            if self._reported is not None and found is None:
                self._events.append(PhaseChanged(self._phase()))
            self._import, self._since, self._reported, self._modules = found, now, None, 0
        if found is None or now - (self._reported or self._since) < (_INTERVAL if self._reported else REPORTED_AFTER):
            return
        before, self._modules = self._modules, len(sys.modules)
        if before != self._modules:
            self._reported = now
            self._events.append(PhaseChanged(self._phase(), f"import {found[1]}", since=self._since))


def _outermost_import(frame: FrameType) -> tuple[int, str] | None:
    """The outermost import below the innermost line of the user's code."""
    found = None
    for each in stack_sampler.innermost(frame, _MOST_FRAMES):
        if each.f_code is _IMPORT:
            found = each
        elif stack_frames.is_user_file(each.f_code.co_filename):
            break
    return None if found is None else (id(found), str(found.f_locals.get("name", "")))
