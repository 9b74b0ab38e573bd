"""Requests samples from the ranks of a job, and waits for them."""

from __future__ import annotations

from notebook_accel.events import Sampled, SamplesRequested
from notebook_accel.launch.job.flamegraphs.flamegraph import Flamegraph
from notebook_accel.launch.job.requests import number_arguments, rank_replies
from notebook_accel.launch.job.requests.job_handle import JobHandle

_LONGEST = 600.0
_HIGHEST_RATE = 1000.0
_CAUSE = "its ranks can't be sampled: call job.flamegraph()"


def sample(job: JobHandle, seconds: float, rank: int | None, rate: float) -> Flamegraph:
    """Implements `Job.flamegraph`."""
    seconds = number_arguments.checked("seconds", seconds, above=0, most=_LONGEST)
    rate = number_arguments.checked("rate", rate, above=0, most=_HIGHEST_RATE, what="a number of samples per second")
    found = rank_replies.replies(job, SamplesRequested(0, seconds, rate), seconds, rank, _CAUSE)
    samples = {each: event for each, event in found.by_rank.items() if isinstance(event, Sampled)}
    if not samples:
        raise TimeoutError(
            f"no rank of {job.title} has reported samples: they may still be starting, or C code may hold the GIL. "
            "Try again, or look at job.stacks()"
        )
    return Flamegraph(job.title, samples, found.missing)
