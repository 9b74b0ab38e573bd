"""Requests samples from the ranks of a job, and waits for them."""

from __future__ import annotations

from notebook_accel.errors import ConfigurationError
from notebook_accel.events import Sampled, SamplesRequested
from notebook_accel.launch.job import rank_requests
from notebook_accel.launch.job.flamegraphs.flamegraph import Flamegraph
from notebook_accel.launch.job.job_state import JobState
from notebook_accel.launch.job.rank_requests import RequestRanks

_LONGEST = 600.0
_HIGHEST_RATE = 1000.0
_CAUSE = "its ranks can't be sampled: call job.flamegraph()"


def sample(job: JobState, request_ranks: RequestRanks, seconds: float, rank: int | None, rate: float) -> Flamegraph:
    """Implements `Job.flamegraph`."""
    for name, given, most in (("seconds", seconds, _LONGEST), ("rate", rate, _HIGHEST_RATE)):
        if isinstance(given, bool) or not (isinstance(given, (int, float)) and 0 < given <= most):
            raise ConfigurationError(f"{name}={given!r} can't be sampled: give a number above 0, and at most {most:g}")
    request = SamplesRequested(0, seconds, rate)
    found = rank_requests.replies(job, request_ranks, request, seconds, rank, _CAUSE)
    samples = {each: event for each, event in found.by_rank.items() if isinstance(event, Sampled)}
    if not samples:
        raise TimeoutError(
            f"no rank of {job.title} has reported samples: they may still be starting, or C code may hold the GIL. "
            "Try again, or look at job.stacks()"
        )
    return Flamegraph(job.title, samples, found.missing)
