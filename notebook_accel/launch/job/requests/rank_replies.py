"""Sends a request to the ranks of a running job, and waits for their replies."""

from __future__ import annotations

import concurrent.futures
import contextlib
import math
import time
from typing import NamedTuple

from notebook_accel.errors import ConfigurationError, JobEndedError
from notebook_accel.events import Event
from notebook_accel.launch.job.job_state import JobState
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.job.requests.job_handle import JobHandle
from notebook_accel.launch.job.requests.runner import RankRequest, Replies

_PATIENCE = 30.0
"""Seconds after the time that a reply may take after which the wait ends."""
_RETRY = 0.05
"""Seconds between two requests to a job of which no rank runs."""


class Answers(NamedTuple):
    """What the ranks replied."""

    by_rank: dict[int, Event]
    """By their global ranks."""
    missing: list[int]
    """The global ranks that run and did not reply."""


def replies(job: JobHandle, event: Event, seconds: float, rank: int | None, cause: str) -> Answers:
    """Sends a request to the ranks of a job, and waits for their replies.

    Args:
        job: The job.
        event: What is sent to the ranks.
        seconds: How long a rank may take.
        rank: The global rank that gets the request; `None` for all.
        cause: What can't be done if the job has ended, as a part of a sentence: `its ranks can't be sampled`.

    Raises:
        ConfigurationError: The job has no such rank.
        JobEndedError: The job has ended.
    """
    ranks = [state.rank for state in job.ranks]
    if rank is not None and rank not in ranks:
        raise ConfigurationError(f"{job.title} has no rank {rank!r}: its ranks are {ranks[0]} to {ranks[-1]}")
    if job.status.ended:
        raise ended(job, cause)
    member = None if rank is None else ranks.index(rank)
    request, deadline = RankRequest(event, seconds, member), time.monotonic() + _PATIENCE
    while not (found := _wait(request, job)) and not job.status.ended:
        if time.monotonic() > deadline or any(map(_runs, job.ranks)):
            break
        time.sleep(_RETRY)  # the launch has not begun yet, or is about to end or to begin anew
    if not found and job.status.ended:
        raise ended(job, cause)
    wanted = [
        index
        for index, state in enumerate(job.ranks)
        if member in (None, index) and not (state.exited or state.answered)
    ]
    missing = [ranks[index] for index in wanted if index not in found]
    return Answers({ranks[index]: event for index, event in sorted(found.items())}, missing)


def _runs(state: RankState) -> bool:
    return state.pid is not None and not (state.exited or state.answered)


def _wait(request: RankRequest, job: JobHandle) -> Replies:
    answer: concurrent.futures.Future[Replies] = concurrent.futures.Future()
    job.runner.request_ranks(request, answer.set_result)
    with contextlib.suppress(concurrent.futures.TimeoutError):
        return answer.result(math.ceil(request.seconds) + _PATIENCE)
    return {}


def ended(job: JobState, cause: str) -> JobEndedError:
    """The error for a request that comes too late."""
    return JobEndedError(
        f"{job.title} has ended ({job.status.value}), so {cause} while it runs, from another cell after "
        "notebook_launcher(..., block=False)"
    )
