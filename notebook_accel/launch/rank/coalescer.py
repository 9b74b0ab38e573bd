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
from notebook_accel.launch.rank.patches import rich, tqdm
from notebook_accel.launch.rank.report_buffer import ReportBuffer
from notebook_accel.launch.wire.constants import REPORT_INTERVAL
from notebook_accel.launch.wire.plain_text import plain


class Coalescer:
    """Holds metrics and the bars of data loaders until they are sent. Any thread adds; one takes."""

    def __init__(self, pace: float = REPORT_INTERVAL) -> None:
        self._pace = pace
        self._reports = ReportBuffer()
        self.add_metrics = self._reports.add
        """Adds what a `Metrics` event holds, as `(values, step)`."""
        self._loaders = LoaderBars()
        self._due = 0.0

    def add(self, event: Metrics | Bar) -> None:
        """Adds an event."""
        if isinstance(event, Bar):
            self._loaders.add(event)
        else:
            self.add_metrics({**event.values}, event.step)

    def take(self, now: float) -> Iterable[Event]:
        """The events to send, if they are due."""
        return self.take_all(now) if now >= self._due else []

    def take_all(self, now: float) -> Iterable[Event]:
        """The events to send, due or not; reports are packed one event after the other, since they may be many."""
        self._due = now + self._pace
        drawn = [*tqdm.take(), *rich.take()]
        at = round(now, 2)
        events = [_drawable(bar, at) for bar in (*drawn, *self._loaders.take(drawn))]
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


class LoaderBars:
    """Bars of data loaders, which the user did not ask for: sent unless a bar that the user draws counts the same."""

    def __init__(self) -> None:
        self._latest: dict[int, Bar] = {}
        self._user_totals: dict[int, float | None] = {}
        """The total of each open bar that the user draws."""
        self._open: list[int] = []
        """The bars of loaders that are sent, the outermost first."""
        self._hidden: set[int] = set()
        """The bars of loaders that are not sent, until they close."""

    def add(self, bar: Bar) -> None:
        self._latest[bar.bar] = bar

    def take(self, drawn: list[Bar]) -> list[Bar]:
        """The events to send, given those of the user's bars."""
        self._user_totals |= {bar.bar: bar.total for bar in drawn if not bar.closed}
        user_totals = {bar.total for bar in drawn} | {*self._user_totals.values()}
        found = []
        for number in list(self._latest):
            bar = self._latest.pop(number)
            if bar.total in user_totals - {None}:
                self._hidden.add(number)
            if number not in self._hidden:
                found.append(self._with_depth(bar))
            elif number in self._open:  # it was shown before the user's bar opened
                self._open.remove(number)
                found.append(replace(bar, closed=True, leave=False))
            if bar.closed:
                self._hidden.discard(number)
        for bar in drawn:
            if bar.closed:  # only now: the last event of a loader comes while the user's bar around it is open
                self._user_totals.pop(bar.bar, None)
        return found

    def _with_depth(self, bar: Bar) -> Bar:
        """The bar placed below the user's bars, and below those of loaders around it."""
        if bar.bar not in self._open:
            self._open.append(bar.bar)
        depth = len(self._user_totals) + self._open.index(bar.bar)
        if bar.closed:
            self._open.remove(bar.bar)
        return replace(bar, depth=depth)
