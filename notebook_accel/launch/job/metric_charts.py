"""What is drawn of a metric: its values by step, merged over ranks, and thinned to a bounded number of bins.

    reports ─▶ pending: the values of each step ─▶ bins, first, last, best, least, most
                        once every rank that still runs has reported the step

Until then a step is not drawn: the mean over those ranks that were faster would say something else than the mean over
all, so the end of the line would bend with every draw.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from notebook_accel.events import Report, Reports
from notebook_accel.events.reports import NO_STEP

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
_MOST_DRAWN = 1e300
"""Greater values are drawn as this, since sums and differences of them might not be finite."""
_LOWER_IS_BETTER = frozenset(
    ("loss", "error", "err", "perplexity", "ppl", "mse", "mae", "rmse", "nll", "wer", "cer", "bpb")
)
_HIGHER_IS_BETTER = frozenset(
    ("accuracy", "acc", "f1", "auc", "auroc", "bleu", "psnr", "ssim", "iou", "miou", "recall", "precision")
)


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
    last_key: Key = (0, -(2**63))
    best: Place | None = None
    """The best mean over ranks, if it is known from the metric's name which values are good."""
    least: Place | None = None
    most: Place | None = None
    nan: int = 0
    """The number of values that are NaN."""
    infinite: int = 0
    first_unusual: int = 0
    """Where the first value that is not finite was reported."""
    followers: list[DrawnSteps] = field(default_factory=list)
    """Get each step that is drawn."""
    _began: float = field(default_factory=time.time)
    _sign: int = 0
    """1 if greater values are better, -1 if lower ones are, 0 if that is unknown."""
    _width: int = 1
    """The number of steps that share a bin."""
    _bins: Bins = field(default_factory=dict)
    _pending: dict[Key, Values] = field(default_factory=dict)
    _positions: dict[int, _Position] = field(default_factory=dict)
    _drawn_to: Key = (0, -(2**63))

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
        for follower in self.followers:
            follower.report(rank, key, at, value)
        if key <= self._drawn_to:
            self._draw(key)
        elif len(self._pending) > _MOST_PENDING:
            self._draw_to(sorted(self._pending)[_MOST_PENDING // 2])

    @property
    def pending(self) -> Iterable[Key]:
        """The steps that are not drawn yet."""
        return self._pending

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
        for follower in self.followers:
            follower.draw(DrawnStep(key, values.copy(), (), self.by_step))
        self._note(values, x)
        if self.first is None or self.last is None:
            self.first, self.last, self.last_key = values.copy(), values.copy(), key
        elif key == self.last_key:
            self.last.merge(values)
        elif key > self.last_key:
            self.last, self.last_key = values.copy(), key
        if x < self.first.first:
            self.first = values.copy()
        elif x == self.first.first and key != self.last_key:
            self.first.merge(values)
        known = self._bins.get(x // self._width)
        if known is not None:
            known.merge(values)
            return
        self._bins[x // self._width] = values
        while len(self._bins) > MOST_BINS:
            self._width *= 2
            self._bins = merged([self._bins], 2)

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
            found = merged([self._bins], factor)
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


def last_steps(points: Sequence[Spread]) -> list[int]:
    """The last step of each point; empty if each stands for one step."""
    return [point.last for point in points] if any(point.first != point.last for point in points) else []


def merged(several: Iterable[Bins], factor: int = 1) -> Bins:
    """All values in bins that are `factor` times as wide, in the order of the bins."""
    found: Bins = {}
    for bins in several:
        for number in sorted(bins):
            known = found.get(number // factor)
            if known is None:
                found[number // factor] = bins[number].copy()
            else:
                known.merge(bins[number])
    return dict(sorted(found.items()))


class JobCharts:
    """The charts of a job's metrics, in the order in which they were first reported. Any thread may draw them."""

    def __init__(self) -> None:
        self._charts: dict[str, Chart] = {}
        self._followers: dict[str, list[DrawnSteps]] = {}
        self._lock = threading.Lock()

    @property
    def names(self) -> list[str]:
        with self._lock:
            return list(self._charts)

    def add(self, rank: int, reports: Iterable[Report]) -> None:
        """Adds reports of a rank."""
        with self._lock:
            for values, step, at in reports:
                for name, value in values.items():
                    chart = self._charts.get(name)
                    if chart is None:
                        followers = self._followers.setdefault(name, [])
                        chart = self._charts[name] = Chart(name, step is not None, followers=followers)
                    chart.add(rank, step, at, value)

    def follow(self, name: str) -> DrawnSteps:
        """The steps of a metric that begin from now on; the metric may come later."""
        with self._lock:
            chart = self._charts.get(name)
            return self._follow(name, DrawnSteps() if chart is None else DrawnSteps(chart.pending))

    def follow_from_last(self, name: str, running: Collection[int]) -> DrawnSteps:
        """The last step of a metric that can be drawn now, and those that can be from now on."""
        with self._lock:
            found, chart = DrawnSteps(), self._charts.get(name)
            if chart is not None:
                chart.settle(running)
                if chart.last is not None:
                    found.draw(DrawnStep(chart.last_key, chart.last.copy(), (), chart.by_step))
            return self._follow(name, found)

    def _follow(self, name: str, found: DrawnSteps) -> DrawnSteps:
        self._followers.setdefault(name, []).append(found)
        return found

    def unfollow(self, name: str, steps: DrawnSteps) -> None:
        """Ends what `follow` or `follow_from_last` has begun."""
        with self._lock:
            self._followers[name].remove(steps)

    def settle(self, name: str, running: Collection[int]) -> None:
        """Draws the steps of a metric that can be drawn, for those who follow it; see `drawn`."""
        with self._lock:
            if name in self._charts:
                self._charts[name].settle(running)

    def drawn(self, name: str, running: Collection[int], most: int) -> Drawing:
        """What to draw of a metric now.

        Args:
            name: The metric.
            running: The ranks that still run, by index.
            most: The most bins.
        """
        with self._lock:
            return draw(self._charts[name], running, most)


class DrawnStep(NamedTuple):
    """What was drawn at one step; a rank whose report came after that adds a further one, with its values alone."""

    key: Key
    values: Values
    by_rank: Sequence[tuple[int, float]]
    """Each report that has come since the steps are followed, with its rank's index in the job."""
    by_step: bool
    """As in `Chart`."""
    at: float = 0.0
    """When the last of these reports came, in seconds since the epoch; 0 if there are none."""


class DrawnSteps:
    """The steps of a chart in the order in which they are drawn, for one reader. One thread adds them, one takes them.

    Args:
        begun: Steps of which some ranks have reported before; they are left out.
    """

    def __init__(self, begun: Iterable[Key] = ()) -> None:
        self._begun = set(begun)
        self._reports: dict[Key, list[tuple[int, float]]] = {}
        self._last: dict[Key, float] = {}
        """When the last report of each of these steps came."""
        self._steps: deque[DrawnStep] = deque()

    def report(self, rank: int, key: Key, at: float, value: float) -> None:
        """Adds a report of a step that is not drawn yet."""
        self._last[key] = max(at, self._last.get(key, at))
        self._reports.setdefault(key, []).append((rank, value))

    def draw(self, step: DrawnStep) -> None:
        """Adds a step that is drawn, with the reports that have come of it."""
        reports, at = self._reports.pop(step.key, ()), self._last.pop(step.key, 0.0)
        if step.key in self._begun:
            self._begun.discard(step.key)
            return
        self._steps.append(step._replace(by_rank=reports, at=at))

    def take(self) -> Iterator[DrawnStep]:
        """Yields the steps that were not taken yet."""
        while self._steps:
            yield self._steps.popleft()


def add(
    chart: Chart | None, name: str, rank: int, reports: Reports, followers: Sequence[DrawnSteps] = ()
) -> Chart | None:
    """Adds the values of a metric to its chart, which the first of them makes.

    Raises:
        StreamError: The columns of the reports don't fit together.
    """
    steps, times, values = reports.series(name)
    if not values:
        return chart
    if chart is None:
        chart = Chart(name, steps[0] != NO_STEP, followers=list(followers))
    for step, at, value in zip(steps, times, values, strict=True):
        chart.add(rank, None if step == NO_STEP else step, at - reports.clock_ahead, value)
    return chart


class LastAttempt:
    """A metric of the last attempt of a job, from all reports of the job in the order of their arrival.

    Args:
        name: The metric.
        followers: Get each step that is drawn, of this attempt and of those before it.
    """

    def __init__(self, name: str, followers: Sequence[DrawnSteps] = ()) -> None:
        self.chart: Chart | None = None
        """`None` if the metric was not reported."""
        self._name = name
        self._followers = followers
        self._attempt = 0

    def add(self, rank: int, reports: Reports) -> None:
        """Adds what a rank has reported.

        Raises:
            StreamError: The columns of the reports don't fit together.
        """
        attempt = reports.attempt or 0
        if attempt > self._attempt:
            if self.chart is not None:
                self.chart.settle(())
            self._attempt, self.chart = attempt, None
        if attempt == self._attempt:
            self.chart = add(self.chart, self._name, rank, reports, self._followers)


def draw(chart: Chart, running: Collection[int], most: int) -> Drawing:
    """What to draw of a chart now; see `JobCharts.drawn`."""
    chart.settle(running)
    bins = [values.copy() for values in chart.bins(most)]
    return Drawing(
        name=chart.name,
        by_step=chart.by_step,
        ranks=chart.ranks,
        points=chart.points(bins),
        marks=[mark for values in bins for mark in values.marks()],
        bins=bins,
        first=None if chart.first is None else chart.first.copy(),
        last=None if chart.last is None else chart.last.copy(),
        best=chart.best,
        least=chart.least,
        most=chart.most,
        nan=chart.nan,
        infinite=chart.infinite,
        first_unusual=chart.first_unusual,
    )


@dataclass(frozen=True)
class Drawing:
    """A chart as it is at one moment; see `Chart` for what is not explained here."""

    name: str
    by_step: bool
    ranks: int
    points: list[Spread]
    marks: list[Mark]
    bins: list[Values]
    first: Values | None
    """`None` if no step can be drawn yet."""
    last: Values | None
    best: Place | None
    least: Place | None
    most: Place | None
    nan: int
    infinite: int
    first_unusual: int

    @property
    def segments(self) -> list[list[Spread]]:
        """The points between gaps: where no value is finite, the line is broken."""
        found: list[list[Spread]] = [[]]
        for point in self.points:
            if math.isnan(point.mean):
                found.append([])
            else:
                found[-1].append(point)
        return [segment for segment in found if segment]


class Place(NamedTuple):
    """A value and where it was reported."""

    value: float
    x: int


class Spread(NamedTuple):
    """The mean and range of a metric at one position of its chart. The mean is NaN where no value is finite."""

    first: int
    """The first step of the position, or the number of the report if the metric has no steps."""
    last: int
    mean: float
    low: float
    high: float

    @property
    def x(self) -> float:
        """Where it is drawn: in the middle of its steps."""
        return (self.first + self.last) / 2


class Mark(NamedTuple):
    """Values that no line can show."""

    x: float
    kind: str
    """`nan`, `inf` or `-inf`."""


@dataclass(slots=True)
class Values:
    """Values at one step, or in one bin."""

    first: int
    """The first step."""
    last: int
    count: int = 0
    """The number of values that are finite."""
    total: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    nan: int = 0
    """The number of values that are NaN."""
    above: int = 0
    """The number of values that are infinite."""
    below: int = 0
    """The number of values that are minus infinity."""

    def add(self, value: float) -> None:
        if math.isfinite(value):
            self.count += 1
            self.total += max(-_MOST_DRAWN, min(_MOST_DRAWN, value))
            if value < self.low:
                self.low = value
            if value > self.high:
                self.high = value
        elif value > 0:
            self.above += 1
        elif value < 0:
            self.below += 1
        else:
            self.nan += 1

    def merge(self, other: Values) -> None:
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.count, self.total = self.count + other.count, self.total + other.total
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.nan, self.above, self.below = (
            self.nan + other.nan,
            self.above + other.above,
            self.below + other.below,
        )

    def copy(self) -> Values:
        # A third of the time that `dataclasses.replace` takes: each drawing of a chart copies hundreds.
        return Values(
            *(self.first, self.last, self.count, self.total, self.low, self.high, self.nan, self.above, self.below)
        )

    @property
    def mean(self) -> float:
        """The mean: NaN or infinite if a value is."""
        if self.nan or (self.above and self.below):
            return math.nan
        if self.above or self.below:
            return math.inf if self.above else -math.inf
        return self.finite_mean

    @property
    def finite_mean(self) -> float:
        """The mean of the finite values; NaN if there are none."""
        if not self.count:
            return math.nan
        # Within the values, so that rounding doesn't make a constant metric look as if it changed.
        return min(max(self.total / self.count, _drawable(self.low)), _drawable(self.high))

    @property
    def is_finite(self) -> bool:
        return not (self.nan or self.above or self.below)

    def spread(self) -> Spread:
        low, high = (self.low, self.high) if self.count else (math.nan, math.nan)
        return Spread(self.first, self.last, self.finite_mean, *map(_drawable, (low, high)))

    def marks(self) -> list[Mark]:
        x = (self.first + self.last) / 2
        found = {"nan": self.nan, "inf": self.above, "-inf": self.below}
        return [Mark(x, kind) for kind, count in found.items() if count]


Bins = dict[int, Values]
"""The values of a range of steps, by the number of the bin; the first step of bin `n` of width `w` is `n * w`."""


def better(name: str) -> int:
    """1 if greater values of a metric are better, -1 if lower ones are, 0 if its name does not tell."""
    words = "".join(letter if letter.isalnum() else " " for letter in name.lower()).split()
    for word in reversed(words):
        if word in _LOWER_IS_BETTER:
            return -1
        if word in _HIGHER_IS_BETTER:
            return 1
    return 0


def _drawable(value: float) -> float:
    return max(-_MOST_DRAWN, min(_MOST_DRAWN, value)) if not math.isnan(value) else value
