"""Runs a function with several numbers of ranks, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from notebook_accel.errors import ConfigurationError
from notebook_accel.insight import comparison, pictures
from notebook_accel.launch.driver.launcher import notebook_launcher
from notebook_accel.launch.job import text
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.show import console
from notebook_accel.rank_spans import counted

_OURS = ("num_processes", "block", "detach", "in_process")
"""The arguments of `notebook_launcher` that `scaling` sets itself, or that it can't measure with."""
_BAR = 240
"""The width of the longest bar, in pixels."""


def scaling(
    function: Callable[..., Any], num_processes: Sequence[int], args: Sequence[Any] = (), **options: Any
) -> ScalingCurve:
    """Runs a function with each number of ranks, one after the other, and returns how the throughput grows.

    The throughput counts samples per second of all ranks together, measured in the training steps with prepared
    objects, without the first step. If batches have no fixed size, it counts steps; without measured steps, whole runs.

    Args:
        function: What to run: a function that trains for some seconds.
        num_processes: The numbers of ranks, such as `[1, 2, 4]`. The efficiency compares with the first.
        args: The positional arguments of the function.
        options: Further arguments of `notebook_launcher`.

    If one of the runs fails or is interrupted, those before it are shown above the error.

    Returns:
        A table with `points`, which a notebook draws as bars, and the `jobs`.

    Raises:
        ConfigurationError: The numbers are not different whole numbers above 0, or an option can't be used here.
        RankError: A rank failed.
    """
    numbers = list(num_processes) if isinstance(num_processes, Sequence) else []
    if not numbers or len({*numbers}) < len(numbers) or not all(type(each) is int and each > 0 for each in numbers):
        raise ConfigurationError(
            f"num_processes={num_processes!r} can't be measured: give different whole numbers above 0, such as [1, 2]"
        )
    for name in _OURS:
        if name in options:
            raise ConfigurationError(f"scaling() sets {name} itself: leave it out")
    jobs: dict[int, Job] = {}
    try:
        for number in numbers:
            jobs[number] = _run(function, args, number, options)
    except BaseException:
        if jobs:
            left = ", ".join(map(str, numbers[len(jobs) :]))
            console.current.notice(f"{_curve(jobs)!r}\nnot measured, because of the error below: {left}")
        raise
    return _curve(jobs)


def _curve(jobs: Mapping[int, Job]) -> ScalingCurve:
    first = next(iter(jobs.values()))
    return ScalingCurve(f"{first.title} by the number of ranks", jobs)


def _run(function: Callable[..., Any], args: Sequence[Any], number: int, options: dict[str, Any]) -> Job:
    job: Job = notebook_launcher(function, args, number, block=False, **options)
    to_its_end(job)
    return job


def to_its_end(job: Job) -> Any:
    """Waits for the result of a job, which an interrupt ends."""
    try:
        return job.result()
    except KeyboardInterrupt:
        job.cancel()
        job.wait()
        raise


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
        found = {ranks: comparison.measures_of(job) for ranks, job in jobs.items()}
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
            f"{counted(point.ranks) + ' ' * (point.ranks == 1):>11} {text.value(point.throughput):>9} {self.unit}, "
            f"{point.speedup:.2f}×, {point.efficiency:4.0%} efficiency"
            for point in self.points
        ]
        return "\n".join([self._title, *self.notes, *lines])

    def _repr_html_(self) -> str:
        ideal = max(point.throughput / point.efficiency for point in self.points)
        below = f"{self.unit}; gray: what the ranks would do if each did as much as with the first number"
        rows = [self._row(point, ideal) for point in self.points]
        return pictures.picture(self._title, self.notes, pictures.table(rows), pictures.div(below))

    def _row(self, point: Point, ideal: float) -> tuple[str, ...]:
        whole, filled = point.throughput / point.efficiency, point.throughput
        parts = ((filled, "#f2b84b", ""), (max(0.0, whole - filled), "#cccccc", ""))
        return (
            counted(point.ranks),
            pictures.bar(parts, _BAR * max(whole, filled) / ideal),
            text.value(point.throughput),
            f"{point.speedup:.2f}×",
            f"{point.efficiency:.0%} efficiency",
        )
