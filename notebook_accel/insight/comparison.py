"""Compares two jobs: `compare(before, after)`."""

from __future__ import annotations

import html
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from notebook_accel.errors import ConfigurationError
from notebook_accel.insight import pictures, step_times
from notebook_accel.insight.metric_steps import MetricSteps
from notebook_accel.launch.job import progress, text
from notebook_accel.launch.job.energy import Energy, amount
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import JobState
from notebook_accel.rank_spans import counted

_SAME = 0.05
"""Throughput that differs by less is about the same."""
_LEAST_PART = 0.1
"""The share of a step from which on a part that has changed is named."""
_MOST_NAMES = 8


class Line(NamedTuple):
    """One row of the table."""

    name: str
    first: str
    second: str
    ratio: str
    """The second as a multiple of the first; empty if that makes no sense."""


class Comparison:
    """Two jobs side by side. A notebook shows it as a table, `print` as text.

    Args:
        first: The job to compare with.
        second: The job that is compared with it.
    """

    def __init__(self, first: Job, second: Job) -> None:
        self._titles = tuple(f"{job.title} {job.id}" for job in (first, second))
        one, other = measures_of(first), measures_of(second)
        self.verdict = "; ".join(_verdict(one, other)) or "the jobs have no measurements in common"
        """What the numbers mean, in one sentence."""
        self.lines = [*_lines(one, other), *_curve_lines(curves(first), curves(second))]
        """The rows of the table."""

    def __repr__(self) -> str:
        rows = [("", *self._titles, ""), *self.lines]
        return "\n".join([self.verdict, *text.aligned(rows)])

    def _repr_html_(self) -> str:
        rows = [[html.escape(cell) for cell in line] for line in self.lines]
        return pictures.picture(self.verdict, (), pictures.table(rows, ("", *self._titles, "")))


def compare(first: Job, second: Job) -> Comparison:
    """Compares what two jobs did: throughput, the parts of a training step, memory, and the values that they reported.

    Either may still run; it is compared by what it has done so far.

    Args:
        first: The job to compare with, such as one on a single rank, or from before a change.
        second: The job that is compared with it.

    Returns:
        A table of both jobs, with a `verdict`, such as `1.9 times the samples per second on 2 ranks instead of 1: 95%
        efficiency`.

    Raises:
        ConfigurationError: An argument is not a job, or both are the same.
        JobLostError: The reports of a job were in a file that is gone.
    """
    for job in (first, second):
        if not isinstance(job, Job):
            raise ConfigurationError(
                f"compare() takes two jobs, not {type(job).__name__}: notebook_launcher(..., block=False) returns one, "
                "and attach() finds one that has ended"
            )
    if first.id == second.id:
        raise ConfigurationError(f"both are {first.title} {first.id}: give two different jobs to compare")
    return Comparison(first, second)


def _verdict(first: Measures, second: Measures) -> Iterator[str]:
    if first.samples_per_second and second.samples_per_second:
        yield _gain(second.samples_per_second / first.samples_per_second, "samples per second", first, second)
    elif first.step and second.step:
        ratio = second.ranks / second.step / (first.ranks / first.step)
        yield _gain(ratio, "steps per second of all ranks", first, second)
    if first.step and second.step:
        part = max(second.parts, key=lambda name: abs(second.parts[name] - first.parts[name]))
        change = second.parts[part] - first.parts[part]
        if abs(change) >= _LEAST_PART * min(first.step, second.step):
            where = f"{_milliseconds(second.parts[part])} instead of {_milliseconds(first.parts[part])} per step"
            yield f"the largest difference is in {part}: {where}"


def _gain(ratio: float, what: str, first: Measures, second: Measures) -> str:
    if first.ranks != second.ranks:
        efficiency = ratio * first.ranks / second.ranks
        ranks = f"{counted(second.ranks)} instead of {first.ranks}"
        return f"{text.value(round(ratio, 2))} times the {what} on {ranks}: {efficiency:.0%} efficiency"
    if abs(ratio - 1) < _SAME:
        return f"about as many {what}"
    return f"{text.value(round(ratio, 2))} times the {what}"


def _lines(first: Measures, second: Measures) -> Iterator[Line]:
    yield _line("ranks", first.ranks, second.ranks, str)
    yield _line("seconds so far", first.seconds, second.seconds, text.duration)
    if first.samples_per_second or second.samples_per_second:
        yield _line("samples per second", first.samples_per_second, second.samples_per_second, text.value)
    if first.step or second.step:
        yield _line("step", first.step, second.step, _milliseconds)
    for part in first.parts or second.parts:
        if first.parts.get(part) or second.parts.get(part):
            yield _line(f"  {part}", first.parts.get(part), second.parts.get(part), _milliseconds)
    if first.memory or second.memory:
        yield _line("memory of a rank, at most", first.memory, second.memory, text.size)
    if first.device_memory or second.device_memory:
        yield _line("memory on a device", first.device_memory, second.device_memory, text.size)
    if first.energy or second.energy:
        yield from _energy_lines(first.energy, second.energy)


def _energy_lines(first: Energy | None, second: Energy | None) -> Iterator[Line]:
    """GPUs and CPUs apart, since often only the GPUs of one job were measured."""
    for name, kind, missing in (("GPUs", "gpus", "ranks_without_gpu"), ("CPUs", "cpus", "ranks_without_cpus")):
        one, other = (None if each is None else getattr(each, kind) for each in (first, second))
        left_out = [0 if each is None else getattr(each, missing) for each in (first, second)]
        line = _line(f"energy of {name}", one, other, amount)
        if any(left_out):
            cells = (line.first, line.second)
            first_cell, second_cell = (
                f"{cell}, without {counted(ranks)}" if cell and ranks else cell
                for cell, ranks in zip(cells, left_out, strict=True)
            )
            line = Line(line.name, first_cell, second_cell, "")
        if one or other:
            yield line


def _curve_lines(first: dict[str, Curve], second: dict[str, Curve]) -> Iterator[Line]:
    """What both have reported, at the last step that both have, and at the last time that both have."""
    for name in [name for name in first if name in second][:_MOST_NAMES]:
        one, other = first[name], second[name]
        step = max(one.means.keys() & other.means.keys(), default=None) if one.by_step and other.by_step else None
        if step is not None:
            yield Line(f"{name} at step {step}", text.value(one.means[step]), text.value(other.means[step]), "")
        until = min(one.seconds[-1], other.seconds[-1])
        yield Line(f"{name} after {text.duration(until)}", _value(one.after(until)), _value(other.after(until)), "")


def _line(name: str, first: float | None, second: float | None, show: Callable[[float], str]) -> Line:
    ratio = f"{second / first:.2f}×" if first and second else ""
    return Line(name, "" if first is None else show(first), "" if second is None else show(second), ratio)


def _milliseconds(seconds: float) -> str:
    return f"{text.value(1e3 * seconds)} ms"


def _value(value: float | None) -> str:
    return "" if value is None else text.value(value)


@dataclass(frozen=True)
class Measures:
    """What a job did so far."""

    ranks: int
    """Of all kernels together."""
    seconds: float
    """Since it began."""
    step: float | None
    """Seconds of a step, the mean of its ranks; `None` if no rank has measured steps; the same holds below."""
    parts: dict[str, float]
    """Seconds of each part of a step, the mean of its ranks."""
    samples_per_second: float | None
    """Of all its ranks together; `None` also if batches have no fixed size."""
    memory: int | None
    """The most bytes that a rank held: its peak if it has ended, otherwise its last report."""
    device_memory: int | None
    """The most bytes that a rank held on its device at the last report."""
    energy: Energy | None
    """Of the devices, for whatever ran on them."""


def measures_of(job: JobState) -> Measures:
    """The numbers of a job as it is."""
    rows = step_times.rows((state.rank, state.step_times) for state in job.ranks)
    rates = [row["samples_per_second"] for row in rows]
    known = [rate for rate in rates if rate is not None]
    held = [(state.exited and state.exited.peak_resident) or state.resident for state in job.ranks]
    on_device = [state.device_used for state in job.ranks if state.device_used is not None]
    # A kernel of several knows only its own ranks; those of the others do the same work.
    share = len(job.ranks) / job.world_size
    return Measures(
        ranks=job.world_size,
        seconds=job.seconds,
        step=_mean([row["seconds"] for row in rows]),
        parts={part: _mean([row[part] for row in rows]) or 0.0 for part in step_times.PARTS} if rows else {},
        samples_per_second=sum(known) / share if known and len(known) == len(rates) == len(job.ranks) else None,
        memory=max(held, default=0) or None,
        device_memory=max(on_device, default=0) or None,
        energy=job.energy,
    )


def _mean(values: list[float | int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


@dataclass(frozen=True)
class Curve:
    """The values of one name, as its chart shows them."""

    by_step: bool
    """Whether its reports have steps; otherwise they are counted."""
    means: Mapping[int, float]
    """The mean of the ranks at each step."""
    seconds: list[float]
    """When each of them was complete, since the job began, in order."""

    def after(self, seconds: float) -> float | None:
        """The last value that was complete by then."""
        position = bisect_right(self.seconds, seconds)
        return list(self.means.values())[position - 1] if position else None


def curves(job: JobState) -> dict[str, Curve]:
    """The curve of each name.

    Raises:
        JobLostError: The reports were in a file that is gone.
    """
    found = {}
    for name in progress.metric_names(job):
        steps = MetricSteps(job, name).new()
        if steps:
            means = {step.key[1]: step.values.mean for step in steps}
            seconds = accumulate((step.at - job.started for step in steps), max)
            found[name] = Curve(steps[0].by_step, means, list(seconds))
    return found
