"""A job on disk: read once, bit by bit if it is long, and then only what was added."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from notebook_accel.errors import JobLostError
from notebook_accel.events import AttemptStarted, Cleared, Event, JobEnded, Line, LinesLeftOut, Notice, Reports, Shown
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.metrics.report_log import ReportLog
from notebook_accel.launch.journal.lines import decode
from notebook_accel.launch.journal.reading import RankEvent, Tail, empty_job, first_and_last
from notebook_accel.launch.journal.records import Record

_OUTPUT = (Line, LinesLeftOut, Shown, Cleared, Notice)
"""Not needed for a list of jobs, and it may take megabytes for each rank."""
_IS_OUTPUT = re.compile(rb'\{(?:"rank":\d+,)?"kind":"(?:%s)"' % b"|".join(each.kind.encode() for each in _OUTPUT))
"""The beginning of a line of the journal with such an event."""
_LEFT_OUT: RankEvent = (None, Notice(""))
"""Stands for such a line, since journals count their lines."""
_LOST = "The process that ran it ended without recording why"
_EVENTS_AT_ONCE = 100
"""Events between two pauses."""
_PAUSE = 0.0005
"""Seconds. Without pauses, the thread of Jupyter's event loop would wait for Python's lock more often."""


class _NoReports(ReportLog):
    """Keeps nothing: what is drawn of metrics is in the job's charts."""

    def add(self, rank: int, reports: Reports) -> None:
        pass


class JobFold:
    """The state of one job, without its output."""

    def __init__(self, record: Record) -> None:
        """Opens the job's journal.

        Raises:
            JobLostError: The journal can't be read.
        """
        self.job: Job = empty_job()
        self.job.report_log = _NoReports()
        self._record = record
        self._tail = Tail(record, _decode)
        self._unread: Iterator[RankEvent] | None = None
        """What is left of the last reading, if it took too long."""

    def update(self, deadline: float) -> bool:
        """Reads what was added since the last time.

        Args:
            deadline: When to stop, on the clock of `time.monotonic`. The next call goes on from there.

        Returns:
            Whether `job` is now as on disk.

        Raises:
            JobLostError: The journal can't be read any more.
        """
        if not self._read(deadline):
            return False
        if self.job.outcome is None and not self._record.is_running():
            if not self._read(deadline):  # its process may have recorded the end just before it exited
                return False
            if self.job.outcome is None:
                self.job.apply(None, _unrecorded_end(self._record))
        return True

    @property
    def is_behind(self) -> bool:
        """Whether the last call of `update` did not read everything."""
        return self._unread is not None

    def close(self) -> None:
        self._unread = None
        self._tail.close()

    def _read(self, deadline: float) -> bool:
        if self._unread is None:
            self._unread = iter(self._tail.read())
        try:
            for number, (rank, event) in enumerate(self._unread, 1):
                if not isinstance(event, _OUTPUT):
                    self.job.apply(rank, event)
                if number % _EVENTS_AT_ONCE == 0:
                    time.sleep(_PAUSE)
                    if time.monotonic() > deadline:
                        return False
        except OSError as error:
            raise JobLostError(f"the job's reports can't be read: {error}") from error
        self._unread = None
        if not self.job.ranks:
            raise JobLostError("its journal has no valid first line")
        return True


def glance(record: Record) -> Job:
    """The job without what its ranks have done, from the first and the last line of its journal.

    Raises:
        JobLostError: The journal can't be read.
    """
    start, end = first_and_last(record)
    job = empty_job()
    job.apply(None, start)
    job.apply(None, AttemptStarted(0))
    if end is not None or not record.is_running():
        job.apply(None, end or _unrecorded_end(record))
    return job


def version_on_disk(record: Record) -> tuple[object, ...]:
    """Equal for two moments between which the job has not changed on disk; last, whether it runs."""
    return (*map(_stamp, (record.journal, record.reports)), record.is_running())


def _decode(line: bytes) -> RankEvent | None:
    return _LEFT_OUT if _IS_OUTPUT.match(line) else decode(line)


def _unrecorded_end(record: Record) -> Event:
    return record.unwritten_end() or JobEnded(Status.LOST.value, record.last_written(), _LOST)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    with contextlib.suppress(OSError):
        found = os.stat(path)
        return found.st_ino, found.st_size, found.st_mtime_ns
    return None
