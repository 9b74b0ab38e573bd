"""Coalesces metrics and bars: a loop may emit thousands a second, and a rank sends the latest of each at a pace.

Every number and text of a bar or metric passes through here, so here they become ones that JSON can carry and every
view can draw. A user's bar may count in NaN, in `10**400`, or in words that are not valid Unicode.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from notebook_accel.events import Bar, Event, Metrics, as_float
from notebook_accel.events.emit import MetricsSink
from notebook_accel.launch.rank.patches import rich, tqdm
from notebook_accel.launch.wire.constants import REPORT_INTERVAL
from notebook_accel.launch.wire.terminal_codes import plain

MOST_SEPARATE = 7
"""Metrics that are sent one by one; those that are added after so many are merged, the latest of each name."""
_MOST_STEP = 2**63
"""A step beyond this is not one: charts then show the time."""


class Coalescer:
    """Holds metrics and the bars of data loaders until they are sent. Any thread adds; one takes."""

    def __init__(self, pace: float = REPORT_INTERVAL) -> None:
        self._pace = pace
        self.add_metrics, self._take_metrics = _metrics()
        """Adds what a `Metrics` event holds, as `(values, step)`."""
        self._loaders = LoaderBars()
        self._due = 0.0

    def add(self, event: Metrics | Bar) -> None:
        """Adds an event."""
        if isinstance(event, Bar):
            self._loaders.add(event)
        else:
            self.add_metrics({**event.values}, event.step)

    def take(self, now: float) -> list[Event]:
        """The events to send, if they are due."""
        return self.take_all(now) if now >= self._due else []

    def take_all(self, now: float) -> list[Event]:
        """The events to send, due or not."""
        self._due = now + self._pace
        drawn = [*tqdm.take(), *rich.take()]
        at = round(now, 2)
        events = [_drawable(bar, at) for bar in (*drawn, *self._loaders.take(drawn))]
        return [*events, *self._take_metrics()]


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


def _metrics_event(values: dict[str, float], step: int | None, at: float) -> Metrics:
    """The event with names of valid text and values that are floats: NaN and infinity are what the user asked for."""
    if step is not None and abs(step) > _MOST_STEP:
        step = None
    return Metrics({plain(str(name)): as_float(value) for name, value in values.items()}, step, at)


_Sample = tuple[dict[str, float], int | None, float]


class _Batch:
    """The metrics that are added between two calls of `take`."""

    __slots__ = ("_rest", "_separate", "merged", "step")

    def __init__(self) -> None:
        self._separate: deque[_Sample] = deque()
        self._rest: dict[str, float] = {}
        self.merged: dict[str, float] | None = None
        """Into this all further metrics are merged, once enough are held that are sent one by one."""
        self.step: int | None = None
        """The step of the last metrics that were merged."""

    def add(self, values: dict[str, float], step: int | None) -> None:
        """Adds metrics that are sent as they are."""
        self._separate.append((values, step, time.time()))
        if len(self._separate) >= MOST_SEPARATE:
            self.merged = self._rest

    def take_back(self) -> _Sample | None:
        """Removes metrics that were added after the batch was taken, if there are any."""
        try:
            return self._separate.pop()
        except IndexError:
            return None

    def events(self) -> list[Metrics]:
        found = []
        with contextlib.suppress(IndexError):  # none is left; another thread may have taken one back
            while True:
                found.append(_metrics_event(*self._separate.popleft()))
        if self._rest:
            found.append(_metrics_event(dict(self._rest), self.step, time.time()))
        return found


def _metrics() -> tuple[MetricsSink, Callable[[], list[Metrics]]]:
    """A function that adds metrics, and one that takes those that were added.

    The first few are sent one by one. All further ones, until they are taken, are merged into one event with the time
    at which it is taken: of each name the latest value always arrives, and arrives last. There is no lock, and these
    are closures, since loops call the first function at every step.
    """
    batch = _Batch()

    def add(values: dict[str, float], step: int | None) -> None:
        while True:
            mine = batch
            merged = mine.merged
            if merged is None:
                mine.add(values, step)
                if mine is batch:
                    return
                late = mine.take_back()  # `take` may have missed it; with several threads, this may be another's
                if late is None:
                    return
                values, step, _ = late
            else:
                merged |= values
                mine.step = step
                if mine is batch:
                    return
                # `take` came in between, and may have missed these.

    def take() -> list[Metrics]:
        nonlocal batch
        taken, batch = batch, _Batch()
        return taken.events()

    return add, take


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
