"""Every value of one metric, by rank, for a chart that a user looks at closely.

    feed of reports ─▶ MetricSeries.read ─▶ a RankSeries a rank ─▶ MetricSeries.binned: the values of a range of steps

The reports are read only once somebody looks, a little at a time, since there may be millions in a file.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator

from notebook_accel.events.reports import NO_STEP, Reports
from notebook_accel.launch.job.metric_charts import Bins, Values
from notebook_accel.launch.journal.slices import Slices

Feed = Callable[[], Iterable[tuple[int, Reports]]]
"""Gives the reports that have come since the last call, each with its rank's index in the job."""


class RankSeries:
    """The values of one rank, in columns."""

    def __init__(self) -> None:
        self._steps = array("q")
        self._values = array("d")
        self._is_sorted = True

    def add(self, steps: array[int], values: array[float], by_step: bool) -> None:
        """Adds values.

        Args:
            steps: Their steps, or `NO_STEP`.
            values: As many values.
            by_step: Whether the metric's reports have steps; otherwise they are counted, from 1.
        """
        before = len(self._steps)
        if not by_step:
            self._steps.extend(range(before + 1, before + len(values) + 1))
        elif min(steps, default=0) != NO_STEP:
            self._steps.extend(steps)
        else:  # a report without a step belongs to the step before it
            last = self._steps[-1] if self._steps else 0
            for step in steps:
                last = last if step == NO_STEP else step
                self._steps.append(last)
        self._values.extend(values)
        added = self._steps[max(0, before - 1) :]
        self._is_sorted = self._is_sorted and all(map(int.__le__, added, added[1:]))

    @property
    def extent(self) -> tuple[int, int]:
        """The first and the last step. There must be a value."""
        if self._is_sorted:
            return self._steps[0], self._steps[-1]
        return min(self._steps), max(self._steps)

    def binned(self, low: float, high: float, width: int) -> Bins:
        """The values from step `low` to step `high`, both included, in bins of `width` steps."""
        if not self._is_sorted:
            self._sort()
        steps, values, bins = self._steps, self._values, {}
        begin, end = bisect_left(steps, low), bisect_right(steps, high)
        while begin < end:
            number = steps[begin] // width
            after = begin + 1
            if width > 1 or (after < end and steps[after] == steps[begin]):
                after = bisect_left(steps, (number + 1) * width, begin, end)
            bins[number] = _values(steps[begin], steps[after - 1], values[begin:after])
            begin = after
        return bins

    def _sort(self) -> None:
        order = sorted(range(len(self._steps)), key=self._steps.__getitem__)
        self._steps = array("q", map(self._steps.__getitem__, order))
        self._values = array("d", map(self._values.__getitem__, order))
        self._is_sorted = True


class MetricSeries:
    """The values of one metric in the last attempt of a job."""

    def __init__(self, name: str, feed: Feed) -> None:
        self.ranks: dict[int, RankSeries] = {}
        """By the rank's index in the job."""
        self.by_step = True
        """Whether its reports have steps."""
        self._name = name
        self._feed = feed
        self._slices = Slices(self._read)
        self._attempt = 0

    def read(self, deadline: float) -> bool:
        """Reads what has come since; returns whether it is done, which it may not be at `deadline`, a monotonic time.

        Raises:
            JobLostError: The reports were in a file that is gone.
        """
        return self._slices.read(deadline)

    def _read(self) -> Iterator[None]:
        for rank, reports in self._feed():
            self._add(rank, reports)
            yield

    def _add(self, rank: int, reports: Reports) -> None:
        attempt = reports.attempt or 0
        if attempt > self._attempt:
            self.ranks, self._attempt = {}, attempt
        steps, _, values = reports.series(self._name)
        if attempt < self._attempt or not values:
            return
        if not self.ranks:
            self.by_step = steps[0] != NO_STEP
        series = self.ranks.get(rank)
        if series is None:
            series = self.ranks[rank] = RankSeries()
        series.add(steps, values, self.by_step)

    @property
    def extent(self) -> tuple[float, float]:
        """The first and the last step of any rank; infinity and minus infinity if there are no values."""
        extents = [series.extent for series in self.ranks.values()]
        first, last = (
            min((low for low, _ in extents), default=math.inf),
            max((high for _, high in extents), default=-math.inf),
        )
        return first, last

    def binned(self, low: float, high: float, width: int) -> dict[int, Bins]:
        """The values from step `low` to step `high` in bins of `width` steps, by rank."""
        return {rank: series.binned(low, high, width) for rank, series in sorted(self.ranks.items())}


def width_of(low: float, high: float, most: int) -> int:
    """The width of at most `most` bins, give or take one: a power of two, so that bins stay when the range grows."""
    width = 1
    while (high - low) / width > most:
        width *= 2
    return width


def _values(first: int, last: int, values: array[float]) -> Values:
    total = math.fsum(values) if len(values) > 1 else values[0]
    if math.isfinite(total) and abs(total) < 1e300:  # otherwise, a value may not be finite
        return Values(first, last, len(values), total, min(values), max(values))
    found = Values(first, last)
    for value in values:
        found.add(value)
    return found
