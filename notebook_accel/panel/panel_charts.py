"""The charts that the panel shows beside each other: which, and what is drawn of each."""

from __future__ import annotations

import math
from collections.abc import Iterable

from notebook_accel.launch.job import progress
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.metric_charts import last_steps
from notebook_accel.launch.job.metric_text import metric_text
from notebook_accel.panel.chart_requests import MARKS
from notebook_accel.panel.pacing import Pacer
from notebook_accel.panel.panel_model import Metric

MOST_CHARTS = 12
_POINTS, _DIGITS = 60, 3
_SECONDS, _SHARE = 0.2, 0.005
_SMALLEST = 1e-290
"""Ranges that are smaller aren't rounded, which fails for the least numbers."""


class PanelCharts:
    """The charts of a job, as the panel last drew them.

    Args:
        job: The job.
        pacer: Limits how often charts are drawn.
    """

    def __init__(self, job: Job, pacer: Pacer | None = None) -> None:
        self._job = job
        self._pacer = pacer or Pacer(_SECONDS, _SHARE)
        self._chosen: list[str] | None = None
        """The metrics that the user wants to see; `None` for the first ones."""
        self.drawn: dict[str, Metric] = {}
        self.values: dict[int, dict[str, float]] = {}
        """The last values of each rank as they were then, so that rows and charts are of one moment."""

    def choose(self, names: list[str]) -> None:
        """Sets which metrics to draw. Any thread may call it."""
        self._chosen = names

    def update_all(self) -> None:
        """Draws every chart."""
        self.drawn = {name: metric(self._job, name) for name in self._names()}
        self.values = {state.rank: dict(state.metrics) for state in self._job.ranks}

    def update(self) -> None:
        """Draws every chart, at a limited rate."""
        if self._pacer.is_due():
            with self._pacer:
                self.update_all()

    def _names(self) -> list[str]:
        names, chosen = progress.metric_names(self._job), self._chosen
        return (names if chosen is None else [name for name in chosen if name in names])[:MOST_CHARTS]


def metric(job: Job, name: str) -> Metric:
    """What is drawn of a metric."""
    drawing = progress.metric(job, name, _POINTS)
    found, points = metric_text(drawing), drawing.points
    has_spread = any(point.low != point.high for point in points if not math.isnan(point.mean))
    rounded = _Rounding(edge for point in points for edge in (point.low, point.high))
    return {
        "now": found.now,
        "range": found.range,
        "brief": found.brief,
        "facts": found.facts,
        "by_step": drawing.by_step,
        "x": [point.first for point in points],
        "last": last_steps(points),
        "mean": [rounded(point.mean) for point in points],
        "low": [rounded(point.low) for point in points] if has_spread else [],
        "high": [rounded(point.high) for point in points] if has_spread else [],
        "marks": [(mark.x, MARKS[mark.kind]) for mark in drawing.marks],
    }


def extent(values: Iterable[float]) -> tuple[float, float]:
    """The lowest value and the range of the values; equal values are placed in the middle."""
    found = list(values)
    low, high = min(found, default=0.0), max(found, default=0.0)
    width = abs(low) or 1.0
    return (low, high - low) if low < high else (low - width / 2, width)


class _Rounding:
    """Rounds values to a small part of their range, which is all that a small chart can show."""

    def __init__(self, values: Iterable[float]) -> None:
        found = [value for value in values if not math.isnan(value)]
        extent = max(found, default=0.0) / 2 - min(found, default=0.0) / 2
        self._digits = _DIGITS - math.floor(math.log10(extent)) if extent > _SMALLEST else None

    def __call__(self, value: float) -> float | None:
        if math.isnan(value):
            return None
        return value if self._digits is None else round(value, self._digits)
