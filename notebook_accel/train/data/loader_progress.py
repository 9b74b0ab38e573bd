"""Reports the progress of a loader as a tqdm bar would; only in a launch, where a listener receives events.

The view decides whether to show the bar: not next to a bar of the user that counts the same batches.
"""

from __future__ import annotations

import itertools
import time
import weakref
from collections.abc import Iterator, Sized
from typing import Any

from notebook_accel import events
from notebook_accel.events import Bar

_INTERVAL = 0.1
"""Seconds between two reports of a loader."""
_bar_numbers = itertools.count(-1, -1)
_number_by_loader: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""The number of each loader's bar, the same in every epoch; negative, so that it is never that of a tqdm bar."""


def with_progress(loader: Sized, batches: Iterator[Any]) -> Iterator[Any]:
    """Yields the batches, and reports the progress if there is a listener for events."""
    return _reporting(loader, batches) if events.has_sink() else batches


def _reporting(loader: Sized, batches: Iterator[Any]) -> Iterator[Any]:
    number, total = _number_by_loader.setdefault(loader, next(_bar_numbers)), _length(loader)
    began = due = time.monotonic()
    control = events.step_control()
    pauses_before = 0.0 if control is None else control.paused_seconds
    done = 0

    def report(*, closed: bool = False) -> None:
        paused = 0.0 if control is None else control.paused_seconds - pauses_before
        elapsed = time.monotonic() - began - paused
        rate = done / elapsed if done and elapsed else None
        events.emit(Bar(number, done, total, "batch", rate=rate, elapsed=elapsed, closed=closed))

    try:
        for batch in batches:
            now = time.monotonic()
            if now >= due:
                due = now + _INTERVAL
                report()
            yield batch
            done += 1
    finally:
        report(closed=True)


def _length(loader: Sized) -> int | None:
    try:
        return len(loader)
    except TypeError:  # iterable datasets need not have a length
        return None
