"""What a rank tells only now and then: its latest, however often it says it."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from notebook_accel.events import Bar, Event, Metrics
from notebook_accel.events.emit import MetricsSink
from notebook_accel.launch.rank.patches import rich, tqdm
from notebook_accel.launch.wire.constants import REPORT_INTERVAL

_MOST_KEPT = 7


class Latest:
    """Holds metrics and the bars of loaders until they are told. Any thread adds; one takes."""

    def __init__(self, pace: float = REPORT_INTERVAL) -> None:
        self._pace = pace
        self.add_metrics, self._take_metrics = _metrics()
        """Takes in what the event `Metrics` tells, as `(values, step)`."""
        self._loaders = LoaderBars()
        self._due = 0.0

    def add(self, event: Metrics | Bar) -> None:
        """Takes in what is to be told."""
        if isinstance(event, Bar):
            self._loaders.add(event)
        else:
            self.add_metrics({**event.values}, event.step)

    def take(self, now: float) -> list[Event]:
        """What there is to tell of bars and metrics, if it is time to."""
        return self.take_all(now) if now >= self._due else []

    def take_all(self, now: float) -> list[Event]:
        """The same, whatever the time."""
        self._due = now + self._pace
        drawn = [*tqdm.take(), *rich.take()]
        told = [replace(bar, at=round(now, 2)) for bar in (*drawn, *self._loaders.take(drawn))]
        return [*told, *self._take_metrics()]


_Kept = tuple[dict[str, float], int | None, float]


class _Batch:
    """The metrics that are added between two times that they are taken."""

    __slots__ = ("_few", "_rest", "merged", "step")

    def __init__(self) -> None:
        self._few: deque[_Kept] = deque()
        self._rest: dict[str, float] = {}
        self.merged: dict[str, float] | None = None
        """What takes in all that comes, once there are enough that are told one by one."""
        self.step: int | None = None
        """Of what came last."""

    def keep(self, values: dict[str, float], step: int | None) -> None:
        """Takes in one of the first."""
        self._few.append((values, step, time.time()))
        if len(self._few) >= _MOST_KEPT:
            self.merged = self._rest

    def give_back(self) -> _Kept | None:
        """One of those that came too late to be told, if there is one."""
        try:
            return self._few.pop()
        except IndexError:
            return None

    def told(self) -> list[Metrics]:
        found = []
        with contextlib.suppress(IndexError):  # none is left, perhaps since another thread has taken it back
            while True:
                found.append(Metrics(*self._few.popleft()))
        if self._rest:
            found.append(Metrics(dict(self._rest), self.step, time.time()))
        return found


def _metrics() -> tuple[MetricsSink, Callable[[], list[Metrics]]]:
    """What adds metrics, and what takes those that were added.

    All are kept while they are few, and each is told once. What comes beyond that until they are taken is merged, and
    told as of that moment, so that of each name the latest value always arrives, and arrives last. Closures, since they
    are faster than methods: loops call the first at every step.
    """
    batch = _Batch()

    def add(values: dict[str, float], step: int | None) -> None:
        while True:
            mine = batch
            merged = mine.merged
            if merged is None:
                mine.keep(values, step)
                if mine is batch:
                    return
                late = mine.give_back()  # it is being taken; with many threads, this may be what another has added
                if late is None:
                    return
                values, step, _ = late
            else:
                merged |= values
                mine.step = step
                if mine is batch:
                    return
                # It has been taken just now, perhaps without these.

    def take() -> list[Metrics]:
        nonlocal batch
        taken, batch = batch, _Batch()
        return taken.told()

    return add, take


class LoaderBars:
    """Bars that nobody has asked for: they are told unless one that the user draws counts the same."""

    def __init__(self) -> None:
        self._latest: dict[int, Bar] = {}
        self._drawn: dict[int, float | None] = {}
        """The total of each bar of the user's that is open."""
        self._open: list[int] = []
        """Those of loaders that are told, the outermost first."""
        self._hidden: set[int] = set()
        """Those of loaders that are not, until they close."""

    def add(self, bar: Bar) -> None:
        self._latest[bar.bar] = bar

    def take(self, drawn: list[Bar]) -> list[Bar]:
        """What there is to tell, given what is told of the user's bars."""
        self._drawn |= {bar.bar: bar.total for bar in drawn if not bar.closed}
        counted = {bar.total for bar in drawn} | {*self._drawn.values()}
        found = []
        for number in list(self._latest):
            bar = self._latest.pop(number)
            if bar.total in counted - {None}:
                self._hidden.add(number)
            if number not in self._hidden:
                found.append(self._place(bar))
            elif number in self._open:  # it was there before the other
                self._open.remove(number)
                found.append(replace(bar, closed=True, leave=False))
            if bar.closed:
                self._hidden.discard(number)
        for bar in drawn:
            if bar.closed:  # only now: a loader's last word is from within it
                self._drawn.pop(bar.bar, None)
        return found

    def _place(self, bar: Bar) -> Bar:
        """Below the user's bars, and those of loaders around it."""
        if bar.bar not in self._open:
            self._open.append(bar.bar)
        depth = len(self._drawn) + self._open.index(bar.bar)
        if bar.closed:
            self._open.remove(bar.bar)
        return replace(bar, depth=depth)
