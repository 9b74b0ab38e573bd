"""What the ranks of a job returned or raised: stored as pickles, which only the requesting process unpickles."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from notebook_accel import errors
from notebook_accel.errors import JobCancelledError, JobLostError, LaunchError, RankError, StreamError
from notebook_accel.events import AttemptStarted, Event, Failed, JobEnded, Phase, Returned, from_wire, to_wire
from notebook_accel.launch.job import rank_error
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.journal.private_files import append, open_private
from notebook_accel.launch.journal.records import VARIABLE, Record, read_pickles
from notebook_accel.launch.wire import payload
from notebook_accel.launch.wire.stream import Decoder, encode


class Results:
    """Writes the result of each rank as soon as it arrives."""

    def __init__(self, path: Path, job: Job) -> None:
        self._path = path
        self._error: OSError | None = None
        job.listen(self._on_event)

    def _on_event(self, rank: int | None, event: Event) -> None:
        try:
            if isinstance(event, AttemptStarted):
                os.close(open_private(self._path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC))
            elif isinstance(event, (Returned, Failed)):
                self._add(rank, event)
        except OSError as error:
            self._error = error

    def collect(self, ranks: Sequence[RankState]) -> tuple[None, Exception | None]:
        """Frees the values, which are on disk; returns an error if they could not be written."""
        for state in ranks:
            state.returned = Returned()
        return self._stored()

    def _stored(self) -> tuple[None, Exception | None]:
        if self._error is None:
            return None, None
        return None, LaunchError(
            f"all ranks returned, but their values could not be stored in {self._path.parent}: {self._error}. Before "
            f"the next launch, free space there, or set {VARIABLE} to a folder on another disk"
        )

    def keep(self, value: Any) -> tuple[None, Exception | None]:
        """Stores the value of the job, which is not that of its ranks; returns an error if that fails."""
        try:
            self._add(None, Returned(payload.pack_value(value, set())))
        except OSError as error:
            self._error = error
        return self._stored()

    def _add(self, rank: int | None, event: Event) -> None:
        header, blobs = to_wire(event)
        append(self._path, (encode({"rank": rank, **header}, blobs), *blobs))


def load(record: Record) -> dict[int | None, Event]:
    """The event with the result of each rank, still pickled; empty if the job was not detached.

    Without a rank, it is the value of the job, if that is not the list of those of its ranks.

    Raises:
        JobLostError: Another user may have written it, or it is damaged.
    """
    try:
        data = read_pickles(record.results, "its results")
    except FileNotFoundError:
        return {}
    decoder = Decoder()
    try:
        read = ((header.pop("rank"), from_wire(header, blobs)) for header, blobs in decoder.feed(data))
        found: dict[int | None, Any] = dict(read)
    except (StreamError, KeyError) as error:
        raise JobLostError(f"its results are damaged: {error}") from error
    return found


def result_of(job: Job, record: Record) -> Any:
    """Returns the values of all ranks, in order; `None` if all returned `None`.

    Raises:
        RankError: A rank failed, or its value can't be unpickled here.
        JobCancelledError: The job was cancelled or interrupted.
        JobLostError: The job ended with what ran it, or only the process that launched it has its values.
        NotebookAccelError: The launch raised another error.
    """
    if job.outcome is None:
        raise JobLostError(f"{job.title} could not be followed to its end")
    if job.status is Status.DONE:
        return _values(job, record)
    if job.status is Status.FAILED:
        raise _error(job, job.outcome, record)
    raise (JobLostError if job.status.is_lost else JobCancelledError)(job.outcome.error)


def _values(job: Job, record: Record) -> Any:
    sent = load(record)
    if None in sent:
        return _value(None, sent[None], job)
    values = [_value(state, sent.get(rank), job) for rank, state in enumerate(job.ranks)]
    return None if all(value is None for value in values) else values


def _value(state: RankState | None, returned: Event | None, job: Job) -> Any:
    if not isinstance(returned, Returned):
        raise JobLostError(
            f"{job.title} is done, but its result went only to the call that launched it. With detach=True, any "
            "notebook can get the result."
        )
    try:
        return payload.unpack_value(returned.value)
    except Exception as problem:
        raise rank_error.lost_value(state, problem) from problem


def _error(job: Job, ended: JobEnded, record: Record) -> Exception:
    """The error with the text that it had in the process that ran the job."""
    cls = getattr(errors, ended.error_type, None)
    if cls is None:  # what raised another error was the launch
        return LaunchError(": ".join(filter(None, (ended.error_type, ended.error))))
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
        sent = load(record)
    except JobLostError:
        sent = {}
    return [
        replace(state, failed=event) if isinstance(event := sent.get(rank), Failed) else state
        for rank, state in enumerate(job.ranks)
    ]
