"""Requests samples from the ranks of a job, and waits for them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import math
from collections.abc import Callable

from notebook_accel.errors import ConfigurationError, JobEndedError
from notebook_accel.launch.job.flamegraphs.flamegraph import Flamegraph
from notebook_accel.launch.job.flamegraphs.samples import SampleRequest, SamplesByRank
from notebook_accel.launch.job.job_state import JobState

_LONGEST = 600.0
_HIGHEST_RATE = 1000.0
_PATIENCE = 30.0
"""Seconds after the end of the sampling after which the wait ends."""


def sample(
    job: JobState,
    request_samples: Callable[[SampleRequest, Callable[[SamplesByRank], object]], object],
    seconds: float,
    rank: int | None,
    rate: float,
) -> Flamegraph:
    """Implements `Job.flamegraph`."""
    for name, given, most in (("seconds", seconds, _LONGEST), ("rate", rate, _HIGHEST_RATE)):
        if isinstance(given, bool) or not (isinstance(given, (int, float)) and 0 < given <= most):
            raise ConfigurationError(f"{name}={given!r} can't be sampled: give a number above 0, and at most {most:g}")
    ranks = [state.rank for state in job.ranks]
    if rank is not None and rank not in ranks:
        raise ConfigurationError(f"{job.title} has no rank {rank!r}: its ranks are {ranks[0]} to {ranks[-1]}")
    if job.status.ended:
        raise _ended(job)
    answer: concurrent.futures.Future[SamplesByRank] = concurrent.futures.Future()
    member = None if rank is None else ranks.index(rank)
    request_samples(SampleRequest(seconds, rate, member), answer.set_result)
    found: SamplesByRank = {}
    with contextlib.suppress(concurrent.futures.TimeoutError):
        found = answer.result(math.ceil(seconds) + _PATIENCE)
    if not found:
        if job.status.ended:
            raise _ended(job)
        raise TimeoutError(
            f"no rank of {job.title} has reported samples: they may still be starting, or C code may hold the GIL. "
            "Try again, or look at job.stacks()"
        )
    wanted = [
        index
        for index, state in enumerate(job.ranks)
        if member in (None, index) and not (state.exited or state.answered)
    ]
    missing = [ranks[index] for index in wanted if index not in found]
    return Flamegraph(job.title, {ranks[index]: sampled for index, sampled in found.items()}, missing)


def _ended(job: JobState) -> JobEndedError:
    return JobEndedError(
        f"{job.title} has ended ({job.status.value}), so its ranks can't be sampled: call job.flamegraph() while it "
        "runs, from another cell after notebook_launcher(..., block=False)"
    )
