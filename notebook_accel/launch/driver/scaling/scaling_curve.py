"""The throughput of a function by the number of its ranks, as `scaling()` returns it."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import NamedTuple

from notebook_accel.launch.job import text
from notebook_accel.launch.job.comparison import measures
from notebook_accel.launch.job.job import Job

_BAR = 240
"""The width of the longest bar, in pixels."""
_CELL = "padding:1px 14px 1px 0;text-align:left"


class Point(NamedTuple):
    """One number of ranks."""

    ranks: int
    throughput: float
    """In the unit of the curve."""
    speedup: float
    """The throughput as a multiple of that of the first number of ranks."""
    efficiency: float
    """The speedup as a share of what it would be if each rank did as much as with the first number of ranks."""


class ScalingCurve:
    """How the throughput grows with the number of ranks. A notebook shows it as bars, `print` as a table.

    Args:
        title: The name of what the ranks ran.
        jobs: The ended job of each number of ranks, in order.
    """

    def __init__(self, title: str, jobs: Mapping[int, Job]) -> None:
        self.jobs = dict(jobs)
        """The job of each number of ranks."""
        found = {ranks: measures.of(job) for ranks, job in jobs.items()}
        samples = [each.samples_per_second for each in found.values()]
        steps = [each.ranks / each.step if each.step else None for each in found.values()]
        self.unit = "samples per second"
        """What the throughput counts: samples or steps of all ranks together; otherwise runs of the function."""
        rates = samples
        if not all(samples):
            self.unit, rates = "steps per second of all ranks", steps
        if not all(rates):
            self.unit, rates = "runs per second", [1 / each.seconds for each in found.values()]
        known = [rate for rate in rates if rate]
        first = next(iter(found))
        self.points = [
            Point(ranks, rate, rate / known[0], rate / known[0] * first / ranks)
            for ranks, rate in zip(found, known, strict=True)
        ]
        """The throughput of each number of ranks."""
        self._title = title

    @property
    def notes(self) -> list[str]:
        """What to know about the numbers."""
        if self.unit != "runs per second":
            return []
        runs = "no rank measured steps with prepared objects, so this compares whole runs, with their start: it"
        return [f"{runs} means something only if all ranks together do the same work in each"]

    def __repr__(self) -> str:
        lines = [
            f"{point.ranks:5} rank{' ' if point.ranks == 1 else 's'} {text.value(point.throughput):>9} {self.unit}, "
            f"{point.speedup:.2f}×, {point.efficiency:4.0%} efficiency"
            for point in self.points
        ]
        return "\n".join([self._title, *self.notes, *lines])

    def _repr_html_(self) -> str:
        ideal = max(point.throughput / point.efficiency for point in self.points)
        rows = "".join(self._row(point, ideal) for point in self.points)
        notes = "".join(f"<div>{html.escape(note)}</div>" for note in self.notes)
        return (
            f"<div><div><b>{html.escape(self._title)}</b></div>{notes}"
            f'<table style="border-collapse:collapse">{rows}</table>'
            f"<div>{self.unit}; gray: what the ranks would do if each did as much as with the first number</div></div>"
        )

    def _row(self, point: Point, ideal: float) -> str:
        whole = _BAR * point.throughput / point.efficiency / ideal
        filled = _BAR * point.throughput / ideal
        bar = (
            f'<div style="width:{max(whole, filled):.0f}px;background-color:#cccccc">'
            f'<div style="width:{filled:.0f}px;height:14px;background-color:#f2b84b"></div></div>'
        )
        cells = (
            f"{point.ranks} rank{'' if point.ranks == 1 else 's'}",
            bar,
            text.value(point.throughput),
            f"{point.speedup:.2f}×",
            f"{point.efficiency:.0%} efficiency",
        )
        return "<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells) + "</tr>"
