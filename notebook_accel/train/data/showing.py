"""Tells how far a loader is, as a bar of tqdm would; only in a launch, where somebody listens.

Whether the bar is shown is decided there: not beside one of the user's that counts the same batches.
"""

from __future__ import annotations

import itertools
import time
import weakref
from collections.abc import Iterator, Sized
from typing import Any

from notebook_accel import events
from notebook_accel.events import Bar

_PACE = 0.1
"""Seconds between two times that a loader tells."""
_fresh = itertools.count(-1, -1)
_numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""Of each loader's bar, the same in every epoch: below zero, out of the way of others' bars."""


def shown(loader: Sized, batches: Iterator[Any]) -> Iterator[Any]:
    """The batches as they come, told of where somebody listens."""
    return _telling(loader, batches) if events.has_sink() else batches


def _telling(loader: Sized, batches: Iterator[Any]) -> Iterator[Any]:
    number, total = _numbers.setdefault(loader, next(_fresh)), _length(loader)
    began = due = time.monotonic()
    done = 0

    def tell(*, closed: bool = False) -> None:
        elapsed = time.monotonic() - began
        rate = done / elapsed if done and elapsed else None
        events.emit(Bar(number, done, total, "batch", rate=rate, elapsed=elapsed, closed=closed))

    try:
        for batch in batches:
            now = time.monotonic()
            if now >= due:
                due = now + _PACE
                tell()
            yield batch
            done += 1
    finally:
        tell(closed=True)


def _length(loader: Sized) -> int | None:
    try:
        return len(loader)
    except TypeError:  # of an iterable dataset
        return None
