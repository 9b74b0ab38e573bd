"""The result of a job that ran in another process, from its files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from notebook_accel import errors
from notebook_accel.errors import JobCancelledError, JobLostError, LaunchError, RankError
from notebook_accel.events import Failed, JobEnded, Phase, Returned
from notebook_accel.launch.job import rank_error
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.journal import results
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.wire import payload


def result(job: Job, record: Record) -> Any:
    """Returns the values of all ranks, in order; `None` if all returned `None`.

    Raises:
        RankError: A rank failed, or its value can't be unpickled here.
        JobCancelledError: The job was cancelled or interrupted.
        JobLostError: The job ended with its kernel, or only that kernel has its values.
        NotebookAccelError: The launch raised another error.
    """
    if job.outcome is None:
        raise JobLostError(f"{job.title} could not be followed to its end")
    if job.status is Status.DONE:
        return _values(job, record)
    if job.status is Status.FAILED:
        raise _error(job, job.outcome, record)
    raise (JobLostError if job.status is Status.LOST else JobCancelledError)(job.outcome.error)


def _values(job: Job, record: Record) -> list[Any] | None:
    sent = results.load(record)
    values = []
    for rank, state in enumerate(job.ranks):
        returned = sent.get(rank)
        if not isinstance(returned, Returned):
            raise JobLostError(
                f"{job.title} is done, but its result went only to the call that launched it. With detach=True, "
                "any notebook can get the result."
            )
        try:
            values.append(payload.unpack_value(returned.value))
        except Exception as problem:
            raise rank_error.lost_value(state, problem) from problem
    return None if all(value is None for value in values) else values


def _error(job: Job, ended: JobEnded, record: Record) -> Exception:
    """The error with the text that it had in the process that ran the job."""
    cls = getattr(errors, ended.error_type, LaunchError)  # what raised another error was the launch
    raised: Exception = cls(ended.error)
    if not isinstance(raised, RankError):
        return raised
    states = _with_exceptions(job, record)
    if any(state.phase is Phase.FAILED for state in states):
        again = rank_error.error(states, oom_killed=False, world_size=job.world_size)
        raised.failures, raised.__cause__ = again.failures, again.__cause__
    return raised


def _with_exceptions(job: Job, record: Record) -> list[RankState]:
    """The ranks, with the pickled exceptions of those that failed, where these were stored."""
    try:
        sent = results.load(record)
    except JobLostError:
        sent = {}
    return [
        replace(state, failed=event) if isinstance(event := sent.get(rank), Failed) else state
        for rank, state in enumerate(job.ranks)
    ]
