"""Requests that the ranks of a job pause or change their training, and waits until all of them have."""

from __future__ import annotations

from collections.abc import Mapping

from notebook_accel.errors import ConfigurationError
from notebook_accel.events import Control, Controlled
from notebook_accel.events.control import CHECKPOINT, END_AFTER_EPOCH, PAUSE, RESUME, TUNE
from notebook_accel.launch.job.job_state import JobState
from notebook_accel.launch.job.requests import number_arguments, rank_replies
from notebook_accel.launch.job.requests.job_handle import JobHandle
from notebook_accel.launch.job.requests.rank_replies import Answers
from notebook_accel.rank_spans import named

_LONGEST = 3600.0
_WORDS = {
    PAUSE: "be paused",
    RESUME: "be resumed",
    CHECKPOINT: "save a checkpoint now",
    END_AFTER_EPOCH: "end after this epoch",
    TUNE: "be tuned",
}
_CALLS = {
    PAUSE: "job.pause()",
    RESUME: "job.resume()",
    CHECKPOINT: "job.checkpoint()",
    END_AFTER_EPOCH: "job.end_after_epoch()",
    TUNE: "job.tune()",
}
_LATE = {
    PAUSE: "It pauses after that step",
    RESUME: "It continues once they can",
    CHECKPOINT: "The checkpoint is saved once the training gets there",
    END_AFTER_EPOCH: "It ends after the epoch of that step",
    TUNE: "The values change after that step",
}


def control(
    job: JobHandle, action: str, values: Mapping[str, float] | None = None, timeout: float = 60.0
) -> Controlled:
    """Has all ranks do the same after the same step, and returns what one of them reports.

    Args:
        job: The job.
        action: One of those of `events/control.py`.
        values: What to tune.
        timeout: Seconds to wait until it is done on all ranks.

    Raises:
        ConfigurationError: It can't be done, or `timeout` is out of range.
        JobEndedError: The job has ended.
        TimeoutError: It was not done in time, and will be done later.
    """
    timeout = number_arguments.checked("timeout", timeout, above=0, most=_LONGEST)
    found = rank_replies.replies(job, Control(0, action, values or {}), timeout, None, _cause(action))
    replies = {rank: reply for rank, reply in found.by_rank.items() if isinstance(reply, Controlled)}
    refused = {rank: reply.error for rank, reply in replies.items() if reply.error}
    if refused:
        raise ConfigurationError(f"{job.title} can't {_WORDS[action]}: {_reasons(refused)}")
    done = {rank: reply for rank, reply in replies.items() if reply.step >= 0}
    if found.missing or not done:
        raise _late(job, action, timeout, found)
    return next((reply for reply in done.values() if reply.detail), next(iter(done.values())))


def _cause(action: str) -> str:
    return f"it can't {_WORDS[action]}: call {_CALLS[action]}"


def _reasons(refused: Mapping[int, str]) -> str:
    by_error: dict[str, list[int]] = {}
    for rank, error in refused.items():
        by_error.setdefault(error, []).append(rank)
    if len(by_error) == 1:
        return next(iter(by_error))
    return "; ".join(f"{named(ranks)}: {error}" for error, ranks in by_error.items())


def _late(job: JobState, action: str, timeout: float, found: Answers) -> Exception:
    if job.status.ended:
        return rank_replies.ended(job, _cause(action))
    if not found.missing:
        return ConfigurationError(f"{job.title} can't {_WORDS[action]}: none of its ranks runs a function now")
    return TimeoutError(
        f"{named(found.missing)} of {job.title} did not get there within {timeout:g} s. {_LATE[action]}"
    )
