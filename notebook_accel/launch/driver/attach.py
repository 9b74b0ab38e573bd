"""`attach` and `jobs`: find jobs that this process or another has launched, through their journals."""

from __future__ import annotations

import weakref

from notebook_accel.errors import ConfigurationError, JobLostError
from notebook_accel.launch.driver.follower import Follower
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.journal import records
from notebook_accel.launch.journal.job_summary import JobSummary, last_summaries
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.show import console
from notebook_accel.launch.system import own_process

_local_jobs: weakref.WeakValueDictionary[str, Job] = weakref.WeakValueDictionary()
"""The jobs that this process runs, by id; `attach` returns the same object."""


def attach(job: str | Job | JobSummary | None = None) -> Job:
    """Shows a job again below this cell: until it ends if it is still running, otherwise in its last state.

    Works after the page is reloaded, in another notebook, and after the kernel is restarted.

    Args:
        job: Its `id`, or enough of its beginning to be unique, or an item of `jobs()`. Defaults to the last job of this
            notebook that runs, or to its last one if none runs; if this notebook has no job, to that of any notebook.

    Returns:
        The job, as the launch would have returned it. `cancel` stops it wherever it runs; `result` returns its values
        if it was launched in this kernel with `block=False`, or anywhere with `detach=True`.

    Raises:
        ConfigurationError: There is no such job, or NOTEBOOK_ACCEL_VIEW names a view that does not exist.
        JobLostError: The job's journal cannot be read.
    """
    chosen = _choose(job.id if isinstance(job, (Job, JobSummary)) else job)
    if isinstance(chosen, Job):
        chosen.show()
        return chosen
    followed = follow(chosen)
    return _local_jobs.get(chosen.id, followed)


def find(job: str | None = None) -> Job:
    """A job, chosen as by `attach`, without showing it; one that runs elsewhere is in its state of this moment.

    Raises:
        ConfigurationError: There is no such job.
        JobLostError: The job's journal can't be read.
    """
    chosen = _choose(job)
    if isinstance(chosen, Job):
        return chosen
    return _local_jobs.get(chosen.id) or _read(chosen).job


def _choose(job_id: str | None) -> Job | Record:
    """Finds the record of a job; returns the job itself if it is of this process and not recorded."""
    if job_id is None and (begun := _unrecorded()) is not None:
        return begun
    try:
        return records.find(job_id, console.current.origin())
    except ConfigurationError:
        if (local := _local_jobs.get(job_id or "")) is None:
            raise
        return local  # it can't be recorded, such as on a full disk


def _read(record: Record) -> Follower:
    try:
        return Follower(record)
    except JobLostError as error:
        raise JobLostError(f"job {record.id} can't be read: {error}") from error


def _unrecorded() -> Job | None:
    """The last job of this process that runs and is not recorded: it has just begun, or can't be, as on a full disk."""
    running = [job for job in list(_local_jobs.values()) if not job.status.ended]
    last = max(running, key=lambda job: job.started, default=None)
    return None if last is None or any(record.id == last.id for record in records.all_records()) else last


def follow(record: Record) -> Job:
    """Shows a job below this cell until it ends, on a thread of its own."""
    follower = _read(record)
    follower.open()  # at once, above what the cell shows next
    if follower.has_ended:
        follower.run()
    else:
        own_process.start_thread(follower.run, f"follow {follower.job.name}")
    return follower.job


def remember(job: Job) -> None:
    """Makes `attach` return this object for the job's id."""
    _local_jobs[job.id] = job


class Jobs(list[JobSummary]):
    """A list whose representation has one line for each job."""

    def __repr__(self) -> str:
        return "\n".join(map(str, self)) or f"no readable job is recorded in {records.folder()}"


def jobs(limit: int = 20) -> Jobs:
    """This user's most recent jobs, newest first, from all notebooks.

    Args:
        limit: How many jobs to list, at most.

    Raises:
        ConfigurationError: `limit` is not a whole number, or below 1.
    """
    if type(limit) is not int or limit < 1:
        raise ConfigurationError(f"limit={limit!r}: give the number of jobs to list, 1 or more")
    return Jobs(last_summaries(limit))
