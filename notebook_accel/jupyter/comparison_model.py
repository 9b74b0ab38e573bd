"""What the browser gets to compare runs. `scripts/generate` writes extension/lab/src/comparisonModel.ts from it."""

from __future__ import annotations

from typing import TypedDict


class Run(TypedDict):
    """A metric of one job, over the run."""

    id: str
    label: str
    """What the job is called, and when it began."""
    by_step: bool
    """Whether `x` are steps; otherwise, the reports of each rank are counted."""
    x: list[float]
    """The steps, thinned; the middle one of those that share a point."""
    mean: list[float | None]
    """The mean of the ranks at each step; `None` if no value is finite."""
    problem: str
    """Why the values are missing; empty if they aren't."""


class Comparison(TypedDict):
    """A metric of several jobs."""

    metric: str
    names: list[str]
    """All metrics that any of the jobs has reported."""
    runs: list[Run]
    """In the order in which they were asked for."""
    complete: bool
    """Whether everything was read; otherwise, the next request has more."""
