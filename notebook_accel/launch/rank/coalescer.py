"""Collects metrics and bars, and sends them at a pace: every report, and of each bar the latest state.

Every number and text of a bar passes through here, so here they become ones that JSON can carry and every view can
draw. A user's bar may count in NaN, in `10**400`, or in words that are not valid Unicode.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import replace

from notebook_accel.events import Bar, Event, Metrics
from notebook_accel.launch.rank.bar_nesting import BarNesting
from notebook_accel.launch.rank.patches import rich, tqdm
from notebook_accel.launch.rank.report_buffer import ReportBuffer
from notebook_accel.launch.wire.constants import REPORT_INTERVAL
from notebook_accel.launch.wire.plain_text import plain


class Coalescer:
    """Holds metrics, and the bars that no user draws, until they are sent. Any thread adds; one takes."""

    def __init__(self, pace: float = REPORT_INTERVAL) -> None:
        self._pace = pace
        self._reports = ReportBuffer()
        self.add_metrics = self._reports.add
        """Adds what a `Metrics` event holds, as `(values, step)`."""
        self._nesting = BarNesting()
        self._due = 0.0

    def add(self, event: Metrics | Bar) -> None:
        """Adds an event."""
        if isinstance(event, Bar):
            self._nesting.add(event)
        else:
            self.add_metrics({**event.values}, event.step)

    def take(self, now: float) -> Iterable[Event]:
        """The events to send, if they are due."""
        return self.take_all(now) if now >= self._due else []

    def take_all(self, now: float) -> Iterable[Event]:
        """The events to send, due or not; reports are packed one event after the other, since they may be many."""
        self._due = now + self._pace
        at = round(now, 2)
        drawn = [_drawable(bar, at) for bar in (*tqdm.take(), *rich.take())]
        events = self._nesting.take(drawn, at)
        return itertools.chain(events, self._reports.take())


def _drawable(bar: Bar, at: float) -> Bar:
    """The bar with finite numbers and valid text; a number that is not finite becomes unknown, or 0."""
    return replace(
        bar,
        n=_finite(bar.n) or 0,
        total=_finite(bar.total),
        description=plain(bar.description),
        unit=plain(bar.unit),
        rate=_finite(bar.rate),
        elapsed=_finite(bar.elapsed) or 0.0,
        initial=_finite(bar.initial) or 0.0,
        postfix=plain(bar.postfix),
        at=at,
    )


def _finite(number: float | None) -> float | None:
    if number is None:
        return None
    try:
        return number if math.isfinite(number) else None
    except OverflowError:  # an integer beyond all floats
        return None
