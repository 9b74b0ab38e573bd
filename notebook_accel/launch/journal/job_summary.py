"""A job in a line: what it is called, when it ran, and how it ended."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass

from notebook_accel.errors import JobLostError
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.text import date, duration, title
from notebook_accel.launch.journal import records
from notebook_accel.launch.journal.marks import Marks
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.journal.state_file import StoredState
from notebook_accel.rank_spans import counted


@dataclass(frozen=True)
class JobSummary:
    """A line of `jobs()`."""

    id: str
    """What to pass to `attach`."""
    name: str
    """The name of the launched function or cell."""
    status: Status
    started: float
    """Seconds since the epoch."""
    seconds: float
    """How long it has run."""
    ranks: int
    detached: bool
    given_title: str = ""
    """What the user calls the job; empty if it is called as its function."""
    is_paused: bool = False
    """Whether its training waits until the user resumes it."""
    is_waiting: bool = False
    """Whether it waits for its devices."""

    @property
    def status_text(self) -> str:
        """Such as `running, detached`."""
        status = "waiting" if self.is_waiting else "paused" if self.is_paused else self.status.value
        return status + (", detached" if self.detached else "")

    @property
    def title(self) -> str:
        """As `Job.title`."""
        return self.given_title or title(self.name)

    def __str__(self) -> str:
        began, ran, ranks = date(self.started, seconds=True), duration(self.seconds), counted(self.ranks)
        return "  ".join((self.id, began, f"{ran:>8}", f"{ranks:>9}", self.title, self.status_text))


def summarize(record: Record) -> JobSummary:
    """The line of a job.

    Raises:
        JobLostError: Its journal can't be read.
    """
    running = record.is_running()
    stored = StoredState.read(record.path)
    start, end = stored.ends()
    start = Marks.of(record).on(start)
    end = end or record.unwritten_end()
    status = Status(end.status) if end else Status.RUNNING if running else stored.head.lost
    ended = end.at if end else time.time() if running else record.last_written()
    return JobSummary(
        start.id,
        start.name,
        status,
        start.at,
        ended - start.at,
        start.size,
        stored.head.detached,
        start.title,
        is_paused=status is Status.RUNNING and stored.is_paused,
        is_waiting=status is Status.RUNNING and stored.awaits_devices,
    )


def last_summaries(limit: int) -> list[JobSummary]:
    """This user's last jobs, newest first."""
    return list(itertools.islice(_summaries(), limit))


def _summaries() -> Iterator[JobSummary]:
    for record in reversed(records.all_records()):
        with contextlib.suppress(JobLostError):  # written by another version of this package, or just removed
            yield summarize(record)
