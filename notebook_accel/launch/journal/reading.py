"""Reads a journal: all of it, and then what is added to it, also while it is written anew."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import IO

from notebook_accel.errors import JobLostError
from notebook_accel.events import Event, JobEnded, JobStarted
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.journal.lines import Head, decode
from notebook_accel.launch.journal.records import Record

RankEvent = tuple[int | None, Event]
_TAIL_BYTES = 2**20
"""Bytes at the end of a journal in which its last line is looked for."""


class Tail:
    """The events of a journal that may grow."""

    def __init__(self, record: Record) -> None:
        """Opens it.

        Raises:
            JobLostError: There is none, or it was written by another version of this package.
        """
        self._record = record
        self._torn = b""
        self._size = 0
        """How many ranks there are."""
        self._file, self.head = self._open()

    def read(self) -> Iterator[RankEvent]:
        """What has been added since the last time, line by whole line."""
        yield from self._read()
        while self._is_replaced():
            yield from self._read()  # what came in between
            before = self.head
            self._file.close()
            self._file, self.head = self._open()
            anew = self._read()
            if self.head.generation == before.generation + 1:
                for _ in range(self.head.kept):  # all of which was read from the file before
                    next(anew, None)
            yield from anew

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

    def _read(self) -> Iterator[RankEvent]:
        *lines, self._torn = (self._torn + self._file.read()).split(b"\n")
        for line in lines:
            found = decode(line)
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
            return False  # somebody has removed it: nothing more comes


def replay(record: Record) -> Job:
    """The job as far as its journal tells.

    Raises:
        JobLostError: The journal can't be read.
    """
    job = empty_job()
    with contextlib.closing(Tail(record)) as tail:
        for rank, event in tail.read():
            job.apply(rank, event)
    return job


def empty_job() -> Job:
    """A job that the first event of a journal makes another."""
    return Job("", 0, 0)


def first_and_last(record: Record) -> tuple[JobStarted, JobEnded | None]:
    """How a job began and how it ended, if it has, without reading all between.

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
        raise JobLostError("its journal does not begin as a journal does")
    return first[1], last[1] if last is not None and isinstance(last[1], JobEnded) else None
