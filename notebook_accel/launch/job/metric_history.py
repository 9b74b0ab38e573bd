"""The history of a metric: a bounded number of points for each rank, and their mean and range over ranks."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from notebook_accel.events import History

MAX_POINTS = 512
"""The number of points that are stored for each metric and rank, over the whole run."""

_MOST_DRAWN = 1e300


class Point(NamedTuple):
    """One value of a metric."""

    step: int | None
    at: float
    """Seconds since the epoch."""
    value: float


class Series:
    """A metric of one rank. Stores every point, then every second, every fourth, and so on; always the last."""

    def __init__(self) -> None:
        self._steps: list[int | None] = []
        self._times = array("d")
        self._values = array("d")
        self._stride = 1
        self._count = 0
        self._last: Point | None = None

    def add(self, point: Point) -> None:
        self._last = point
        if self._count % self._stride == 0:
            if len(self._values) == MAX_POINTS:
                self._thin()
            self._append(point)
        self._count += 1

    def points(self, most: int = MAX_POINTS) -> list[Point]:
        """The stored points in order, thinned evenly to about `most` of them, and the last point."""
        every = max(1, len(self._values) // most)
        stored = (self._steps[::every], self._times[::every], self._values[::every])
        found = list(map(Point._make, zip(*stored, strict=False)))  # not strict: another thread may be adding a point
        if self._last is not None and (not found or found[-1].at != self._last.at):
            found.append(self._last)
        return found

    def event(self, name: str) -> History:
        """The whole series as one event."""
        assert self._last is not None
        steps, times, values = zip(*self._stored(), self._last, strict=True)
        return History(name, self._stride, self._count, steps, times, values)

    @classmethod
    def from_event(cls, history: History) -> Series:
        """Restores a series from `event`."""
        series = cls()
        series._stride, series._count = history.stride, history.count
        *points, series._last = map(Point, history.steps, history.times, history.values)
        for point in points:
            series._append(point)
        return series

    @property
    def last(self) -> Point | None:
        return self._last

    def _stored(self) -> Iterator[Point]:
        return map(Point, self._steps, self._times, self._values)

    def _append(self, point: Point) -> None:
        self._steps.append(point.step)
        self._times.append(point.at)
        self._values.append(point.value)

    def _thin(self) -> None:
        self._stride *= 2
        self._steps, self._times, self._values = self._steps[::2], self._times[::2], self._values[::2]


class Spread(NamedTuple):
    """The mean and range of a metric over ranks, at one position of its chart."""

    x: float
    """The step, or the time if the points have no steps."""
    mean: float
    low: float
    high: float


def spread(series: Iterable[Sequence[Point]], bins: int) -> list[Spread]:
    """Merges the ranks' points of one metric into at most `bins` positions, evenly apart.

    In each bin a rank counts with its mean there. Values that are not finite are ignored, and so are those whose sums
    and differences might not be.
    """
    ranks = [[point for point in points if abs(point.value) < _MOST_DRAWN] for points in series]
    by_step = all(point.step is not None for points in ranks for point in points)
    column = 0 if by_step else 1
    located = [([point[column] or 0 for point in points], points) for points in ranks if points]
    if not located:
        return []
    first = float(min(min(xs) for xs, _ in located))
    width = (max(max(xs) for xs, _ in located) - first) / bins
    at: dict[int, list[float]] = {}
    for xs, points in located:
        own: dict[int, list[float]] = {}
        numbers = [int((x - first) / width) for x in xs] if width else [0] * len(xs)
        for number, point in zip(numbers, points, strict=True):
            if number in own:
                own[number].append(point[2])
            else:
                own[number] = [point[2]]
        if bins in own:  # the end of the last bin belongs to it
            own[bins - 1] = own.get(bins - 1, []) + own.pop(bins)
        for bin_, values in own.items():
            at.setdefault(bin_, []).append(sum(values) / len(values))
    return [
        Spread(first + (bin_ + 0.5) * width, sum(means) / len(means), min(means), max(means))
        for bin_, means in sorted(at.items())
    ]


def rows(histories: Iterable[tuple[int, dict[str, Series]]], began: float) -> list[dict[str, float | int | None]]:
    """One row for each time that a rank logged: its rank, step and seconds since `began`, and the values."""
    found: list[dict[str, float | int | None]] = []
    for rank, history in histories:
        own: dict[tuple[float, int | None], dict[str, float | int | None]] = {}
        for name, series in list(history.items()):
            for step, at, value in series.points():
                row = own.setdefault((at, step), {"rank": rank, "step": step, "seconds": at - began})
                row[name] = value
        found += [own[key] for key in sorted(own, key=lambda key: key[0])]
    return found
