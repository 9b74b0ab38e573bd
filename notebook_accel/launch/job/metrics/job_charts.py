"""The charts of a job's metrics, and what to draw of each at one moment."""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from notebook_accel.events import Report
from notebook_accel.launch.job.metrics.metric_chart import Chart
from notebook_accel.launch.job.metrics.metric_values import Mark, Place, Spread, Values


class JobCharts:
    """The charts of a job's metrics, in the order in which they were first reported. Any thread may draw them."""

    def __init__(self) -> None:
        self._charts: dict[str, Chart] = {}
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
                        chart = self._charts[name] = Chart(name, step is not None)
                    chart.add(rank, step, at, value)

    def drawn(self, name: str, running: Collection[int], most: int) -> Drawing:
        """What to draw of a metric now.

        Args:
            name: The metric.
            running: The ranks that still run, by index.
            most: The most bins.
        """
        with self._lock:
            return draw(self._charts[name], running, most)


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
