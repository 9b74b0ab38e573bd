"""The numbers of one job that are compared with those of another."""

from __future__ import annotations

from dataclasses import dataclass

from notebook_accel.launch.job import anatomy
from notebook_accel.launch.job.job_state import JobState


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


def of(job: JobState) -> Measures:
    """The numbers of a job as it is."""
    rows = anatomy.rows((state.rank, state.step_times) for state in job.ranks)
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
        parts={part: _mean([row[part] for row in rows]) or 0.0 for part in anatomy.PARTS} if rows else {},
        samples_per_second=sum(known) / share if known and len(known) == len(rates) == len(job.ranks) else None,
        memory=max(held, default=0) or None,
        device_memory=max(on_device, default=0) or None,
    )


def _mean(values: list[float | int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
