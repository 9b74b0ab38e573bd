"""What is drawn of a metric: its values by step, merged over ranks, and thinned to a bounded number of bins.

    reports ─▶ pending: the values of each step ─▶ bins, first, last, best, least, most
                        once every rank that still runs has reported the step

Until then a step is not drawn: the mean over those ranks that were faster would say something else than the mean over
all, so the end of the line would bend with every draw.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from notebook_accel.launch.job.metrics.metric_values import Place, Spread, Values, better

MOST_BINS = 256
"""The most bins of a metric, over the whole run."""
_MOST_PENDING = 2**15
"""The most steps that wait for ranks that have not reported them."""
_FIRST_WAIT = 1.0
"""Seconds that a new metric waits for ranks that have not reported it at all: they may never do."""
_SILENCE = 10.0
"""Seconds without the metric after which a rank is no longer waited for, or twice its longest pause if that is more."""

Key = tuple[int, int]
"""A rank's pass and its step: a new pass begins where its steps begin again."""


@dataclass
class _Position:
    """How far one rank is."""

    key: Key = (0, -(2**63))
    count: int = 0
    """Its reports of the metric."""
    at: float = 0.0
    pause: float = 0.0
    """The longest time between two of its reports."""


@dataclass
class Chart:
    """The chart of one metric."""

    name: str
    by_step: bool
    """Whether its reports have steps; otherwise they are counted."""
    first: Values | None = None
    """The values of the first step that is drawn."""
    last: Values | None = None
    """The values of the last one."""
    best: Place | None = None
    """The best mean over ranks, if it is known from the metric's name which values are good."""
    least: Place | None = None
    most: Place | None = None
    nan: int = 0
    """The number of values that are NaN."""
    infinite: int = 0
    first_unusual: int = 0
    """Where the first value that is not finite was reported."""
    _began: float = field(default_factory=time.time)
    _sign: int = 0
    """1 if greater values are better, -1 if lower ones are, 0 if that is unknown."""
    _width: int = 1
    """The number of steps that share a bin."""
    _bins: dict[int, Values] = field(default_factory=dict)
    _pending: dict[Key, Values] = field(default_factory=dict)
    _positions: dict[int, _Position] = field(default_factory=dict)
    _drawn_to: Key = (0, -(2**63))
    _last_key: Key = (0, -(2**63))

    def __post_init__(self) -> None:
        self._sign = better(self.name)

    @property
    def ranks(self) -> int:
        """The number of ranks that have reported the metric."""
        return len(self._positions)

    def add(self, rank: int, step: int | None, at: float, value: float) -> None:
        """Adds a report of a rank."""
        position = self._positions.get(rank)
        if position is None:
            position = self._positions[rank] = _Position(at=at)
        position.count += 1
        passed, before = position.key
        x = step
        if not self.by_step or x is None:  # in a chart by step, a report without one belongs to the step before it
            x = max(before, 0) if self.by_step else position.count
        key = position.key = (passed + (x < before), x)
        position.pause = max(position.pause, at - position.at)
        position.at = at
        values = self._pending.get(key)
        if values is None:
            values = self._pending[key] = Values(x, x)
        values.add(value)
        if key <= self._drawn_to:
            self._draw(key)
        elif len(self._pending) > _MOST_PENDING:
            self._draw_to(sorted(self._pending)[_MOST_PENDING // 2])

    def settle(self, running: Collection[int]) -> None:
        """Draws the steps that every rank that runs, and still reports the metric, has reported."""
        now = time.time()
        if not self._pending:
            return
        lead = max(self._pending)
        if any(rank not in self._positions for rank in running) and 0 <= now - self._began < _FIRST_WAIT:
            return
        waited_for = [
            position.key
            for rank, position in self._positions.items()
            if rank in running and now - position.at < max(_SILENCE, 2 * position.pause)
        ]
        self._draw_to(min(waited_for, default=lead))

    def _draw_to(self, end: Key) -> None:
        if end > self._drawn_to:
            self._drawn_to = end
            for key in sorted(key for key in self._pending if key <= end):
                self._draw(key)

    def _draw(self, key: Key) -> None:
        values = self._pending.pop(key)
        x = key[1]
        self._note(values, x)
        if self.first is None or self.last is None:
            self.first, self.last, self._last_key = values.copy(), values.copy(), key
        elif key == self._last_key:
            self.last.merge(values)
        elif key > self._last_key:
            self.last, self._last_key = values.copy(), key
        if x < self.first.first:
            self.first = values.copy()
        elif x == self.first.first and key != self._last_key:
            self.first.merge(values)
        known = self._bins.get(x // self._width)
        if known is not None:
            known.merge(values)
            return
        self._bins[x // self._width] = values
        while len(self._bins) > MOST_BINS:
            self._width *= 2
            self._bins = _merged(self._bins, 2)

    def _note(self, values: Values, x: int) -> None:
        """Keeps what stands out, with its position."""
        if not values.is_finite:
            if not self.nan and not self.infinite:
                self.first_unusual = x
            self.nan += values.nan
            self.infinite += values.above + values.below
        if values.count:
            if self.least is None or values.low < self.least.value:
                self.least = Place(values.low, x)
            if self.most is None or values.high > self.most.value:
                self.most = Place(values.high, x)
            better_than = self.best is None or self._sign * (values.finite_mean - self.best.value) > 0
            if self._sign and values.is_finite and better_than:
                self.best = Place(values.finite_mean, x)

    def bins(self, most: int) -> list[Values]:
        """At most `most` bins, in order."""
        found, factor = self._bins, 1
        while len(found) > most:
            factor *= 2
            found = _merged(self._bins, factor)
        return [found[key] for key in sorted(found)]

    def points(self, bins: Sequence[Values]) -> list[Spread]:
        """The chart's bins as points, between the first and the last step as they are."""
        found = [values.spread() for values in bins]
        if bins and self.first is not None and self.last is not None:
            if bins[0].first != bins[0].last:
                found.insert(0, self.first.spread())
            if bins[-1].first != bins[-1].last and self.last.first == bins[-1].last:
                found.append(self.last.spread())
        return found


def _merged(bins: dict[int, Values], factor: int) -> dict[int, Values]:
    """The bins, as many as `factor` times as wide."""
    found: dict[int, Values] = {}
    for key in sorted(bins):
        known = found.get(key // factor)
        if known is None:
            found[key // factor] = bins[key].copy()
        else:
            known.merge(bins[key])
    return found
