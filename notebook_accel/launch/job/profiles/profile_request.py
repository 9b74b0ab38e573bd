"""Asks the ranks of a job for a profile of their next steps, and waits for the traces."""

from __future__ import annotations

from collections.abc import Mapping

from notebook_accel.errors import ConfigurationError
from notebook_accel.events import Profiled, ProfileRequested
from notebook_accel.launch.job.job_state import JobState
from notebook_accel.launch.job.profiles.job_profile import JobProfile
from notebook_accel.launch.job.requests import number_arguments, rank_replies
from notebook_accel.launch.job.requests.job_handle import JobHandle
from notebook_accel.rank_spans import named

MOST_STEPS = 1000
_LONGEST = 3600.0
_WRITING = 60.0
"""Seconds that a rank may take to stop the profiler and to send the trace."""
_MOST_BYTES = 32 * 2**20
"""The longest trace of a rank before compression, in bytes."""
_MOST_BYTES_TOGETHER = 512 * 2**20
_LEAST_BYTES = 2**20
_CAUSE = "its steps can't be profiled: call job.profile()"


def profile(job: JobHandle, steps: int, rank: int | None, timeout: float) -> JobProfile:
    """Implements `Job.profile`."""
    if type(steps) is not int or not 0 < steps <= MOST_STEPS:
        raise ConfigurationError(f"steps={steps!r} can't be profiled: give a whole number from 1 to {MOST_STEPS}")
    timeout = number_arguments.checked("timeout", timeout, above=0, most=_LONGEST)
    ranks = len(job.ranks) if rank is None else 1
    most = max(_LEAST_BYTES, min(_MOST_BYTES, _MOST_BYTES_TOGETHER // ranks))
    request = ProfileRequested(0, steps, timeout, most)
    found = rank_replies.replies(job, request, timeout + _WRITING, rank, _CAUSE)
    replies = {each: event for each, event in found.by_rank.items() if isinstance(event, Profiled)}
    profiled = {each: event for each, event in replies.items() if not event.error}
    silent = [state.rank for state in job.ranks if rank in (None, state.rank) and state.rank not in replies]
    gone = [each for each in silent if each not in found.missing]
    notes = [f"{named(each)} did not reply" for each in [found.missing] if each]
    notes += [
        f"{named(each)} ended before {'it' if len(each) == 1 else 'they'} sent a trace" for each in [gone] if each
    ]
    notes += [f"{named(each)} sent no trace: {error}" for error, each in _by_error(replies).items()]
    if not profiled:
        is_late = any(event.is_late for event in replies.values())
        raise _no_trace(job, notes, is_late=is_late)
    hosts = {state.host for state in job.ranks if state.rank in profiled}
    return JobProfile(job.title, profiled, notes, several_nodes=len(hosts) > 1)


def _no_trace(job: JobState, notes: list[str], *, is_late: bool) -> Exception:
    found = "; ".join(notes) or "its ranks ended in the meantime"
    if job.status.ended:
        return rank_replies.ended(job, f"it has no profile ({found}): call job.profile()")
    text = f"{job.title} can't be profiled now: {found}"
    if is_late:
        text += (
            ". A step ends when an optimizer of torch has stepped; if a step takes longer, pass a longer timeout=. "
            "job.flamegraph() shows where the time goes without steps"
        )
    return TimeoutError(text)


def _by_error(replies: Mapping[int, Profiled]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for rank, reply in replies.items():
        if reply.error:
            found.setdefault(reply.error, []).append(rank)
    return found
