"""A job in a line: what it is called, when it ran, and how it ended."""

from __future__ import annotations

import time
from dataclasses import dataclass

from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.text import duration, title
from notebook_accel.launch.journal import reading
from notebook_accel.launch.journal.records import Record


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

    @property
    def title(self) -> str:
        """As `Job.title`."""
        return self.given_title or title(self.name)

    def __str__(self) -> str:
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.started))
        ranks = f"{self.ranks} rank{'s' if self.ranks > 1 else ''}"
        columns = (self.id, began, f"{duration(self.seconds):>8}", f"{ranks:>9}", self.title, self.status.value)
        return "  ".join(columns) + (", detached" if self.detached else "")


def summarize(record: Record) -> JobSummary:
    """The line of a job.

    Raises:
        JobLostError: Its journal can't be read.
    """
    running = record.is_running()
    start, end = reading.first_and_last(record)
    end = end or record.unwritten_end()
    status = Status(end.status) if end else Status.RUNNING if running else Status.LOST
    ended = end.at if end else time.time() if running else record.last_written()
    detached = record.head().detached
    return JobSummary(start.id, start.name, status, start.at, ended - start.at, start.size, detached, start.title)
