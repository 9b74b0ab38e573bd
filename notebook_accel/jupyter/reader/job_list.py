"""The user's jobs on disk: their list, as it is now, and requests to stop, mark, or delete one."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from notebook_accel.errors import JobLostError, NotebookAccelError
from notebook_accel.jupyter.model import JobListing, JobRow
from notebook_accel.jupyter.reader.job_fold import JobFold, glance, version_on_disk
from notebook_accel.jupyter.reader.job_row import POINTS, marked, row, telling_damage, unreadable, without_superseded
from notebook_accel.launch.journal import marks, pages, records
from notebook_accel.launch.journal.marks import Marks
from notebook_accel.launch.journal.private_files import is_written_by_us
from notebook_accel.launch.journal.records import Record

READING = 0.3
"""Seconds for which one request may read jobs; a request to stop a job may have to wait for that."""
MOST = 50
"""The most jobs that are listed."""
_NOTED_WITHIN = 60.0
"""Seconds after the end of a job within which a page may still note in which cell it is shown."""
SHARE = 0.005
"""The part of a core that following the jobs that run may take: the more ranks, the less often they are read."""


class UnknownJobError(NotebookAccelError):
    """No job has this ID."""


class JobRunsError(NotebookAccelError):
    """The job can't be deleted, since it runs."""


class JobNotMarkedError(NotebookAccelError):
    """What the user says about the job can't be written."""


class JobNotDeletedError(NotebookAccelError):
    """The job's folder can't be removed."""


class _Known(NamedTuple):
    """A row, as long as the job has this version on disk."""

    version: tuple[object, ...]
    row: JobRow


@dataclass
class _Job:
    """What is known of one job."""

    full: _Known | None = None
    """Once it was read."""
    is_over: bool = False
    """Whether its end is recorded, so that it no longer changes."""
    due: float = 0.0
    """When it is read again if it runs, on the clock of `time.monotonic`."""
    brief: _Known | None = None
    """Made from its beginning and its end only."""
    fold: JobFold | None = None
    """While it is read."""


class JobList:
    """The jobs of one user. For one thread at a time.

    Jobs that run are read on, at a limited rate; of one that has ended, only the row is kept.
    """

    def __init__(self) -> None:
        self._jobs: dict[Record, _Job] = {}

    def listing(self, *, brief: bool = False, seconds: float = READING) -> JobListing:
        """The last jobs, the newest first.

        Args:
            brief: Whether only jobs that run are read. The rows of others then lack progress and metrics, unless they
                were read before.
            seconds: How long jobs may be read. The rows of those that are left are brief, and the next call continues.
        """
        problem = _problem()
        known = {} if problem else marks.every()
        found = [] if problem else _listed(known)
        for gone in self._jobs.keys() - set(found):
            del self._jobs[gone]
        deadline = time.monotonic() + seconds
        rows = [marked(self._row(record, brief, deadline), known.get(record.id, Marks())) for record in found]
        return {"jobs": without_superseded(rows), "problem": problem or _unrecorded()}

    def mark(self, job_id: str, given: dict[str, Any]) -> None:
        """Changes what the user says about a job.

        Raises:
            UnknownJobError: There is no such job.
            ConfigurationError: There is no such mark, or its value isn't valid.
            JobNotMarkedError: It can't be written.
        """
        try:
            marks.change(find(job_id), given)
        except OSError as error:
            raise JobNotMarkedError(f"what you say about job {job_id} can't be saved: {error}") from error

    def stop(self, job_id: str) -> None:
        """Asks a job to stop: its ranks get a KeyboardInterrupt. The second request kills them.

        Raises:
            UnknownJobError: There is no such job.
        """
        find(job_id).request_stop()

    def delete(self, job_id: str) -> None:
        """Removes a job's folder.

        Raises:
            UnknownJobError: There is no such job.
            JobRunsError: The job runs, or may run on another machine.
            JobNotDeletedError: The folder can't be removed.
        """
        record = find(job_id)
        if record.may_run():
            raise JobRunsError(f"job {job_id} is running: stop it first")
        record.remove()
        if os.path.lexists(record.path):
            raise JobNotDeletedError(f"job {job_id} can't be deleted: {record.path} can't be removed; is it read-only?")
        self._jobs.pop(record, None)

    def _row(self, record: Record, brief: bool, deadline: float) -> JobRow:
        entry = self._jobs.setdefault(record, _Job())
        if entry.full is not None and (entry.is_over or (time.monotonic() < entry.due and record.is_running())):
            return self._as_asked(entry.full.row, record)
        version = version_on_disk(record)
        if entry.full is not None and entry.full.version == version and not entry.full.row["live"]:
            return entry.full.row
        runs = version[-1]
        began = time.thread_time()
        try:
            with telling_damage(in_log=entry.full is None):
                if entry.fold is None and (runs or not brief) and self._may_begin(deadline):
                    entry.fold = JobFold(record)
                if entry.fold is None or not entry.fold.update(deadline):
                    return self._brief_row(entry, record, version)
                found = row(entry.fold.job, entry.fold.metric(POINTS), next(pages.outputs(record), None))
                job = entry.fold.job
                is_noted = bool(found["cell"]) or job.seconds + job.started < time.time() - _NOTED_WITHIN
                entry.is_over = job.status.ended and not job.status.is_lost and is_noted
        except JobLostError as error:  # which must not hide the other jobs
            entry.fold = None
            found = unreadable(record, str(error))
        entry.full = _Known(version, found)
        if found["live"]:
            entry.due = time.monotonic() + (time.thread_time() - began) * self._running() / SHARE
        else:
            entry.fold = None
        return self._as_asked(found, record)

    def _running(self) -> int:
        """The number of jobs that are followed."""
        return sum(each.fold is not None for each in self._jobs.values())

    def _as_asked(self, known: JobRow, record: Record) -> JobRow:
        """The row with requests to stop that the process of the job may not have recorded yet."""
        requests = record.stop_requests() if known["live"] else 0
        return {**known, "stopping": requests} if requests > known["stopping"] else known

    def _may_begin(self, deadline: float) -> bool:
        """Whether there is time to read another job; one at a time is read beyond the deadline, so that all are."""
        if time.monotonic() < deadline:
            return True
        return not any(each.fold is not None and each.fold.is_behind for each in self._jobs.values())

    def _brief_row(self, entry: _Job, record: Record, version: tuple[object, ...]) -> JobRow:
        if entry.brief is None or entry.brief.version != version:
            entry.brief = _Known(version, row(glance(record)))
        return entry.brief.row


def _listed(known: Mapping[str, Marks]) -> list[Record]:
    """The last jobs, and those that the user has pinned; the newest first."""
    found = records.last_records(MOST)
    older = {job_id for job_id, each in known.items() if each.pinned} - {record.id for record in found}
    return found + [record for record in reversed(records.all_records()) if record.id in older] if older else found


def _problem() -> str:
    """Why the folder of jobs can't be read; empty if it can, or if no job was ever launched."""
    folder = records.folder()
    try:
        status = folder.stat()
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"The folder of jobs, {folder}, can't be read: {error.strerror}"
    if not is_written_by_us(status):
        return (
            f"Others can write to the folder of jobs, {folder}, so it isn't read. To allow that, run chmod 700 on it."
        )
    return ""


def _unrecorded() -> str:
    """Why new jobs can't be recorded; empty if they can, as far as this process can tell."""
    folder = records.folder()
    nearest = next(each for each in (folder, *folder.parents) if each.exists())
    if nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK):
        return ""
    return (
        f"Jobs that are launched now aren't recorded and don't appear here, because {nearest} isn't writable. "
        f"To record them elsewhere, set {records.VARIABLE} to a folder, for the Jupyter server too."
    )


def find(job_id: str) -> Record:
    """The job with exactly this ID. A request's ID is compared with those on disk, and never becomes part of a path."""
    found = [record for record in records.all_records() if record.id == job_id] if not _problem() else []
    if not found:
        raise UnknownJobError(f"there is no job {job_id}: it may have been deleted, or replaced by newer jobs")
    return found[-1]
