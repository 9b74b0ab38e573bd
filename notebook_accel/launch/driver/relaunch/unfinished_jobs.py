"""Finds the job to resume: one that saves checkpoints, and did not end well."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from notebook_accel.errors import ConfigurationError, JobLostError
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.journal import records
from notebook_accel.launch.journal.recorded.job_summary import JobSummary, summarize
from notebook_accel.launch.journal.records import Record


@dataclass(frozen=True)
class Checkpointed:
    """A job that saves checkpoints."""

    record: Record
    summary: JobSummary
    folder: str
    """The folder of its checkpoints."""
    origin: str
    """The notebook that launched it."""

    def __str__(self) -> str:
        began = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.summary.started))
        return f"{self.summary.title} ({self.summary.id}, of {began}, {self.summary.status.value})"


def find(job_id: str | None, origin: str) -> Checkpointed:
    """The job whose ID begins with `job_id`; without one, the last of a notebook that did not end well.

    A job whose training a later one with the same folder has finished counts as finished.

    Raises:
        ConfigurationError: There is none, it is done, or a job with the same folder runs.
    """
    every = _all()
    if job_id is None:
        own = [each for each in every if each.origin == origin]
        unfinished = _unfinished(own)
        if not unfinished:
            raise ConfigurationError(_explain_none(own, [each for each in every if each.origin != origin]))
        found = unfinished[0]
    else:
        found = _named(records.find(job_id, origin), every)
    for each in every:
        if each.folder == found.folder and not each.summary.status.ended:
            raise ConfigurationError(
                f"{each} still runs, and saves to {each.folder}: %accelerate attach {each.summary.id} shows it"
            )
    return found


def unfinished_ids() -> list[str]:
    """The IDs of all jobs that can be resumed, the newest first."""
    return [each.summary.id for each in _unfinished(_all())]


def _all() -> list[Checkpointed]:
    """All jobs that save checkpoints, the newest first."""
    found = []
    for record in reversed(records.all_records()):
        try:
            head = record.head()
            if head.checkpoint_dir:
                found.append(Checkpointed(record, summarize(record), head.checkpoint_dir, head.origin))
        except JobLostError:  # written by another version of this package, or just removed
            continue
    return found


def _unfinished(jobs: Sequence[Checkpointed]) -> list[Checkpointed]:
    found, finished = [], set()
    for each in jobs:
        if each.summary.status is Status.DONE:
            finished.add(each.folder)
        elif each.summary.status.ended and each.folder not in finished:
            found.append(each)
    return found


def _named(record: Record, every: Sequence[Checkpointed]) -> Checkpointed:
    found = next((each for each in every if each.record == record), None)
    if found is None:
        raise ConfigurationError(
            f"job {record.id} saved no checkpoints, so there is nothing to resume: launch it again, with checkpoint="
        )
    if found.summary.status.ended and found not in _unfinished(every):
        raise ConfigurationError(
            f"{found} succeeded, or a later job with its folder, {found.folder}, did: there is nothing to resume. To "
            "train for more epochs, launch it again with the same folder"
        )
    return found


def _explain_none(own: Sequence[Checkpointed], others: Sequence[Checkpointed]) -> str:
    running = [each for each in own if not each.summary.status.ended]
    if running:
        return f"{running[0]} still runs: %accelerate attach {running[0].summary.id} shows it"
    text = "there is nothing to resume: no job of this notebook that saves checkpoints (checkpoint=) ended unfinished"
    elsewhere = _unfinished(others)[:3]
    if not elsewhere:
        return f"{text}, according to {records.folder()}"
    jobs = "; ".join(map(str, elsewhere))
    return f"{text}. Of other notebooks there are {jobs}: %accelerate resume {elsewhere[0].summary.id}"
