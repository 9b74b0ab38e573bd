"""The file of a job's reports, beside its journal: the frames of `Reports` events, in the order of arrival."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from notebook_accel.errors import JobLostError, StreamError
from notebook_accel.events import Reports, from_wire, is_sound, to_wire
from notebook_accel.launch.job.report_log import Entry
from notebook_accel.launch.journal.private_files import append
from notebook_accel.launch.wire.stream import Decoder, encode

_READ = 2**20
"""Bytes that are read at once."""


class ReportFile:
    """A file of reports, opened only while it is written or read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, entries: Sequence[Entry]) -> None:
        """Adds reports: all of them, or none.

        Raises:
            OSError: They can't be written.
        """
        append(self.path, (_frame(*entry) for entry in entries))

    def read(self) -> Iterator[Entry]:
        """Yields the reports; a torn or damaged one ends them.

        Raises:
            JobLostError: The file can't be read.
        """
        try:
            yield from ReportTail(self.path).read()
        except OSError as error:
            raise JobLostError(
                f"the job's reports can't be read: {error}. There were too many for memory, and their file is removed "
                "with the job's journal"
            ) from error


class ReportTail:
    """Reads a file of reports that may still grow."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._decoder = Decoder()
        self._is_damaged = False

    def size(self) -> int:
        """The size of the file in bytes; 0 if there is none."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def read(self, end: int | None = None) -> Iterator[Entry]:
        """Yields the reports that were added since the last call.

        Args:
            end: The position in the file, in bytes, to read to. By default, its end.

        Raises:
            OSError: The file can't be read.
        """
        with open(self._path, "rb") as file:
            file.seek(self._position)
            while not self._is_damaged:
                data = file.read(_READ if end is None else min(_READ, max(0, end - self._position)))
                if not data:
                    return
                self._position += len(data)
                try:
                    for header, blobs in self._decoder.feed(data):
                        yield _entry(header, blobs)
                except StreamError:
                    self._is_damaged = True


def _frame(rank: int, reports: Reports) -> bytes:
    header, blobs = to_wire(reports)
    return b"".join((encode({"rank": rank, **header}, blobs), *blobs))


def _entry(header: dict[str, Any], blobs: list[bytearray]) -> Entry:
    """Raises `StreamError` if the reports are not ones that a rank sends."""
    rank = header.pop("rank", None)
    event = from_wire(header, blobs)
    if type(rank) is not int or rank < 0 or not isinstance(event, Reports) or not is_sound(event):
        raise StreamError("a damaged file of reports")
    event.check()
    return rank, event
