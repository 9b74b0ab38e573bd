"""The values of one metric in the range of steps that an enlarged chart shows, as columns of numbers."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field

from notebook_accel.insight.metric_series import MetricSeries, width_of
from notebook_accel.launch.job.metric_charts import Bins, Drawing, merged
from notebook_accel.panel.panel_model import ChartTable

MARKS = {"nan": 0, "inf": 1, "-inf": -1}
"""The kinds of marks, as the browser knows them."""


@dataclass(frozen=True)
class Table:
    """What a chart shows of one metric."""

    by_step: bool
    extent: tuple[float, float]
    """The first and the last step of the whole run."""
    bins: Bins
    by_rank: dict[int, Bins] = field(default_factory=dict)
    """By the rank's index in the job."""

    def described(self, job: str, name: str, ranks: list[int]) -> ChartTable:
        """What the browser needs to know about the columns.

        Args:
            job: The ID of an earlier job; empty for the panel's own.
            name: The metric.
            ranks: The ranks that have a column.
        """
        return {
            "job": job,
            "metric": name,
            "size": len(self.bins),
            "ranks": ranks,
            "marks": [(mark.x, MARKS[mark.kind]) for values in self.bins.values() for mark in values.marks()],
            "by_step": self.by_step,
            "extent": self.extent if self.extent[0] <= self.extent[1] else (0.0, 0.0),
        }

    def columns(self, *, with_ranks: bool) -> list[array[float]]:
        """The first and the last step of each bin, the mean, the minimum, the maximum, and the mean of each rank."""
        spreads = [values.spread() for values in self.bins.values()]
        found = [
            array("d", [values.first for values in self.bins.values()]),
            array("d", [values.last for values in self.bins.values()]),
            array("d", [spread.mean for spread in spreads]),
            array("d", [spread.low for spread in spreads]),
            array("d", [spread.high for spread in spreads]),
        ]
        if with_ranks:
            for bins in self.by_rank.values():
                found.append(array("d", [bins[at].finite_mean if at in bins else math.nan for at in self.bins]))
        return found


def of_drawing(drawing: Drawing) -> Table:
    """The whole run, as the job keeps it."""
    extent = (drawing.bins[0].first, drawing.bins[-1].last) if drawing.bins else (0.0, 0.0)
    return Table(drawing.by_step, extent, dict(enumerate(drawing.bins)))


def of_series(series: MetricSeries, end: float, wanted: tuple[float, float], points: int) -> Table:
    """A range of steps, and a bin to each side, so that lines reach the edges of the chart.

    Args:
        series: The values.
        end: The last step to show.
        wanted: The range.
        points: The most points, give or take a few.
    """
    low, high = series.extent
    high = min(high, end)
    left, right = max(low, wanted[0]), min(high, wanted[1])
    if left > right:
        return Table(series.by_step, (low, high), {})
    width = width_of(left, right, points)
    by_rank = series.binned(left - width, min(high, right + width), width)
    return Table(series.by_step, (low, high), merged(by_rank.values()), by_rank)
