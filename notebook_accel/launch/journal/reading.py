"""Reads a journal, and follows it while it grows and is compacted."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import IO, Generic, TypeVar

from notebook_accel.errors import JobLostError
from notebook_accel.events import JobEnded, JobStarted, Reports
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.journal.lines import Head, decode
from notebook_accel.launch.journal.log_files import LogFiles
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.journal.report_file import ReportFile, ReportTail

_Decoded = TypeVar("_Decoded")
"""What becomes of the line of an event: the event, unless the reader wants less."""
_TAIL_BYTES = 2**20
"""Bytes at the end of a journal that are searched for its last line."""


class Tail(Generic[_Decoded]):
    """Yields the events of a journal that may still grow, like `tail -F`."""

    def __init__(self, record: Record, decode: Callable[[bytes], tuple[int | None, _Decoded] | None]) -> None:
        """Opens the journal.

        Args:
            record: The job.
            decode: Returns the rank and the event of a line; `None` if the line is damaged. Usually `lines.decode`.

        Raises:
            JobLostError: It does not exist, or it was written by another version of this package.
        """
        self._record = record
        self._decode = decode
        self._torn = b""
        self._size = 0
        """The number of ranks."""
        self._reports = ReportTail(record.reports)
        self._file, self.head = self._open()

    def read(self) -> Iterator[tuple[int | None, _Decoded | Reports]]:
        """Yields the events that were added since the last call; a torn line waits until it is whole.

        Reports come from a file of their own. Those that are in it now follow events of the journal that is read
        afterwards: so the attempt that they belong to has begun.
        """
        end = self._reports.size()
        for rank, event in self._read_journal():
            if isinstance(event, JobEnded):
                end = self._reports.size()
            yield rank, event
        if end:
            yield from (entry for entry in self._reports.read(end) if entry[0] < self._size)

    def _read_journal(self) -> Iterator[tuple[int | None, _Decoded]]:
        yield from self._read()
        while self._is_replaced():
            yield from self._read()  # what was written before the file was replaced
            before = self.head
            self._file.close()
            self._file, self.head = self._open()
            replacing = self._read()
            if self.head.generation == before.generation + 1:
                for _ in range(self.head.kept):  # they replace events that were read before
                    next(replacing, None)
            else:
                self._reports = ReportTail(self._record.reports)  # the first event resets the job
            yield from replacing

    def close(self) -> None:
        self._file.close()

    def _open(self) -> tuple[IO[bytes], Head]:
        try:
            file = open(self._record.journal, "rb")  # noqa: SIM115  # closed by `close`
        except OSError as error:
            raise JobLostError(f"its journal can't be read: {error}") from error
        self._torn = b""
        try:
            return file, Head.parse(file.readline())
        except JobLostError:
            file.close()
            raise

    def _read(self) -> Iterator[tuple[int | None, _Decoded]]:
        *lines, self._torn = (self._torn + self._file.read()).split(b"\n")
        for line in lines:
            found = self._decode(line)
            if found is None:
                continue
            rank, event = found
            if isinstance(event, JobStarted):
                self._size = event.size
            if rank is None or 0 <= rank < self._size:
                yield found

    def _is_replaced(self) -> bool:
        try:
            return os.stat(self._record.journal).st_ino != os.fstat(self._file.fileno()).st_ino
        except OSError:
            return False  # the folder was removed: nothing more comes


def replay(record: Record) -> Job:
    """The job, folded from its journal.

    Raises:
        JobLostError: The journal can't be read.
    """
    job = empty_job()
    job.report_log.follow(ReportFile(record.reports))
    job.output_log.follow(LogFiles(record.path))
    with contextlib.closing(Tail(record, decode)) as tail:
        for rank, event in tail.read():
            job.apply(rank, event)
    return job


def empty_job() -> Job:
    """A job without ranks; the first event of a journal resets it."""
    return Job("", 0, 0)


def first_and_last(record: Record) -> tuple[JobStarted, JobEnded | None]:
    """The first event of a job, and the last if it has ended, without reading those in between.

    Raises:
        JobLostError: The journal can't be read.
    """
    try:
        with open(record.journal, "rb") as file:
            Head.parse(file.readline())
            first = decode(file.readline())
            file.seek(max(file.tell(), os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            last = decode(file.read().rstrip(b"\n").rpartition(b"\n")[2])
    except OSError as error:
        raise JobLostError(f"its journal can't be read: {error}") from error
    if first is None or not isinstance(first[1], JobStarted):
        raise JobLostError("its journal has no valid first line")
    return first[1], last[1] if last is not None and isinstance(last[1], JobEnded) else None
