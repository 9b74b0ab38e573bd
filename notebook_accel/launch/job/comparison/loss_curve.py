"""What a job's ranks have reported under one name, by step and by time."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from notebook_accel.launch.job.job_state import JobState


@dataclass(frozen=True)
class Curve:
    """The values of one name."""

    by_step: Mapping[int, float]
    """The mean of the ranks that reported it at the step."""
    seconds: list[float]
    """When each value came, since the job began, in order."""
    values: list[float]
    """The values of all ranks, in the same order."""

    def at_step(self, step: int) -> float | None:
        """The value at a step."""
        return self.by_step.get(step)

    def after(self, seconds: float) -> float | None:
        """The last value that came until then."""
        position = bisect_right(self.seconds, seconds)
        return self.values[position - 1] if position else None


def curves(job: JobState) -> dict[str, Curve]:
    """The curve of each name.

    Raises:
        JobLostError: The reports were in a file that is gone.
    """
    steps: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    times: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for _, reports in job.report_log.read():
        for values, step, at in reports.rows():
            for name, value in values.items():
                times[name].append((at - job.started, value))
                if step is not None:
                    steps[name][step].append(value)
    found = {}
    for name, points in times.items():
        points.sort()
        by_step = {step: fmean(values) for step, values in steps[name].items()}
        found[name] = Curve(by_step, [at for at, _ in points], [value for _, value in points])
    return found
