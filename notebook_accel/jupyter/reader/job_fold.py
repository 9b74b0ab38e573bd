"""A job on disk, as far as the sidebar shows it: read once, bit by bit if it is long, and then only what was added.

A job of many ranks writes hundreds of lines a second. Lines that the sidebar doesn't need are not decoded, and of each
progress bar only the last state is.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from notebook_accel.errors import JobLostError, StreamError
from notebook_accel.events import (
    AttemptStarted,
    Bar,
    Cleared,
    Event,
    Heartbeat,
    JobEnded,
    JobStarted,
    LargestArrays,
    Line,
    LinesLeftOut,
    MemoryPeaks,
    Notice,
    Reports,
    Shown,
    SnapshotSaved,
    StepTimes,
)
from notebook_accel.jupyter.reader.run_metric import MainMetric
from notebook_accel.launch.job import progress
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.metric_charts import Drawing
from notebook_accel.launch.journal.lines import decode
from notebook_accel.launch.journal.reading import Tail, empty_job, first_and_last
from notebook_accel.launch.journal.records import Record

_UNUSED = (
    *(Line, LinesLeftOut, Shown, Cleared, Notice),  # may take megabytes for each rank
    *(Heartbeat, StepTimes, MemoryPeaks, LargestArrays, SnapshotSaved),
)
"""Not needed for a list of jobs."""
_IS_UNUSED = re.compile(rb'\{(?:"rank":\d+,)?"kind":"(?:%s)"' % b"|".join(each.kind.encode() for each in _UNUSED))
"""The beginning of a line of the journal with such an event."""
_BAR = re.compile(rb'\{"rank":(\d+),"kind":"bar","bar":(\d+),')
"""The beginning of a line with the state of a bar."""
_LEFT_OUT = (None, Notice(""))
"""Stands for a line that isn't needed, since journals count their lines."""
_LOST = "The process that ran it ended without recording why"
_CLOCK_EVERY = 64
"""Events between two looks at the clock."""


class _BarLine(NamedTuple):
    """The state of a bar, not decoded yet."""

    bar: int
    line: bytes


_Entry = tuple[int | None, Event | _BarLine]


class JobFold:
    """The state of one job, without its output and what it uses."""

    def __init__(self, record: Record) -> None:
        """Opens the job's journal.

        Raises:
            JobLostError: The journal can't be read.
        """
        self.job: Job = empty_job()
        self._record = record
        self._tail = Tail(record, _decode)
        self._metric = MainMetric()
        self._bars: dict[tuple[int, int], bytes] = {}
        """The last line of each rank's bars that isn't decoded yet."""
        self._unread: Iterator[_Entry] | None = None
        """What is left of the last reading, if it took too long."""

    def update(self, deadline: float) -> bool:
        """Reads what was added since the last time.

        Args:
            deadline: When to stop, on the clock of `time.monotonic`. The next call continues from there.

        Returns:
            Whether `job` is now as on disk.

        Raises:
            JobLostError: The journal can no longer be read.
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

    def metric(self, points: int) -> Drawing | None:
        """The main metric over the run, in at most `points` points; `None` if nothing was reported."""
        return self._metric.drawn(progress.running(self.job), points)

    def close(self) -> None:
        self._unread = None
        self._tail.close()

    def _read(self, deadline: float) -> bool:
        if self._unread is None:
            self._unread = iter(self._tail.read())
        try:
            for number, (rank, event) in enumerate(self._unread, 1):
                self._apply(rank, event)
                if number % _CLOCK_EVERY == 0 and time.monotonic() > deadline:
                    return False
        except (OSError, StreamError) as error:
            raise JobLostError(f"the job's reports can't be read: {error}") from error
        self._unread = None
        self._apply_bars()
        if not self.job.ranks:
            raise JobLostError("its journal has no valid first line")
        return True

    def _apply(self, rank: int | None, event: Event | _BarLine) -> None:
        if rank is not None and isinstance(event, _BarLine):
            self._bars[rank, event.bar] = event.line
        elif rank is not None and isinstance(event, Reports):
            if event.attempt in (None, self.job.attempt):
                self._metric.add(rank, event)
        elif not isinstance(event, (_BarLine, *_UNUSED)):
            if isinstance(event, (JobStarted, AttemptStarted)):
                self._metric, self._bars = MainMetric(), {}  # those of ranks that are over
            self.job.apply(rank, event)

    def _apply_bars(self) -> None:
        for (rank, _), line in self._bars.items():
            found = decode(line)
            if found is not None and isinstance(found[1], Bar):
                self.job.apply(rank, found[1])
        self._bars.clear()


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


def _decode(line: bytes) -> _Entry | None:
    bar = _BAR.match(line)
    if bar is not None:
        return int(bar[1]), _BarLine(int(bar[2]), line)
    return _LEFT_OUT if _IS_UNUSED.match(line) else decode(line)


def _unrecorded_end(record: Record) -> Event:
    return record.unwritten_end() or JobEnded(Status.LOST.value, record.last_written(), _LOST)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    with contextlib.suppress(OSError):
        found = os.stat(path)
        return found.st_ino, found.st_size, found.st_mtime_ns
    return None
