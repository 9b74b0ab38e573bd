"""Holds a rank's reports until they are sent: in memory while they are few, otherwise in a file. None is left out.

In memory, they are a flat list. Loops report at every step: a tuple for each report would make the garbage collector go
through all of them again and again, which takes longer than the report. It doesn't track what a row consists of: a
dictionary of numbers, a step or `None`, and the time.
"""

from __future__ import annotations

import tempfile
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import IO, Any

from notebook_accel.errors import StreamError
from notebook_accel.events import Report, Reports, as_float, from_wire, to_wire
from notebook_accel.events.emit import MetricsSink
from notebook_accel.events.reports import MOST_ROWS, NO_STEP
from notebook_accel.launch.wire.plain_text import plain
from notebook_accel.launch.wire.stream import Decoder, encode

MOST_IN_MEMORY = 2**16
"""The number of reports in memory from which on they are moved to a file, some 20 MB."""
_READ = 2**20
"""Bytes of that file that are read at once."""
WIDTH = 3
"""The items of a row: the values by name, the step, and the time in seconds since the epoch."""
_MOST_NAMES = 1000
_plain_names: dict[Any, str] = {}
"""Names as valid text: to look at each again would take most of the time that packing takes."""


class ReportBuffer:
    """The reports of one rank. Any thread adds, and one takes.

    A report never waits: if the driver does not read, the thread that reports moves what is held to a file, unless
    another thread is at it.
    """

    def __init__(self) -> None:
        self._rows: list[Any] = []
        self.lock = threading.Lock()
        """Held by the thread that removes rows."""
        self._file: IO[bytes] | None = None
        self._decoder = Decoder()
        self._read_to = 0
        self._in_file = 0
        """The reports in the file."""
        self._can_spill = True
        self.add: MetricsSink = appender(self._rows, MOST_IN_MEMORY, self._spill)
        """Adds what a `Metrics` event holds, as `(values, step)`."""

    @property
    def in_memory(self) -> int:
        """How many reports are held in memory."""
        return len(self._rows) // WIDTH

    def take(self) -> Iterator[Reports]:
        """Yields what is held now, in order; what is added in the meantime waits for the next call."""
        left = self._in_file + self.in_memory
        while left > 0:
            for reports in self._next():
                left -= reports.count
                yield reports

    def _next(self) -> list[Reports]:
        with self.lock:
            if self._file is None:
                packed = self._pack_first()
                self._drop(packed)
                return packed
            self._file.seek(self._read_to)
            data = self._file.read(_READ)
            self._read_to += len(data)
            found = [_decoded(header, blobs) for header, blobs in self._decoder.feed(data)]
            self._in_file -= sum(reports.count for reports in found)
            if not self._in_file:
                self._file.close()
                self._file = None
            return found

    def _pack_first(self) -> list[Reports]:
        """The first reports, which only the thread that holds the lock removes."""
        return pack(self._rows[: WIDTH * MOST_ROWS])

    def _drop(self, packed: Sequence[Reports]) -> int:
        """Removes the reports of these events from memory; returns how many they are."""
        count = sum(reports.count for reports in packed)
        del self._rows[: WIDTH * count]
        return count

    def _spill(self) -> None:
        """Moves what is held to the file; does nothing while another thread takes or moves it."""
        if not self._can_spill or not self.lock.acquire(blocking=False):
            return
        try:
            if self._file is None:
                # Without a buffer, which would keep what a full disk has refused, and fail again as it is read.
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # closed once it is read
                self._decoder, self._read_to = Decoder(), 0
            end = self._file.seek(0, 2)
            try:
                while self.in_memory >= MOST_ROWS:
                    packed = self._pack_first()
                    data = memoryview(b"".join(_frame(reports) for reports in packed))
                    while data:
                        data = data[self._file.write(data) :]
                    end = self._file.tell()
                    self._in_file += self._drop(packed)
            except OSError:
                self._file.truncate(end)
                raise
        except OSError:
            self._can_spill = False  # the disk is full: memory is all there is
        finally:
            self.lock.release()


def _frame(reports: Reports) -> bytes:
    header, blobs = to_wire(reports)
    return b"".join((encode(header, blobs), *blobs))


def _decoded(header: dict[str, Any], blobs: list[bytearray]) -> Reports:
    event = from_wire(header, blobs)
    if not isinstance(event, Reports):
        raise StreamError(f"a {event.kind!r} event among reports")
    return event


def appender(rows: list[Any], most: int, when_full: Callable[[], object]) -> MetricsSink:
    """The function that appends a report: a closure, since loops call it at every step.

    Each row is appended by one operation, so any thread may call it.

    Args:
        rows: The rows.
        most: The number of rows from which on each call also calls `when_full`.
        when_full: Makes room.
    """
    extend, now, most_items = rows.extend, time.time, WIDTH * most

    def append(values: dict[str, float], step: int | None) -> None:
        extend((values, step, now()))
        if len(rows) >= most_items:
            when_full()

    return append


def pack(rows: Sequence[Any]) -> list[Reports]:
    """Packs rows into events."""
    values, steps, times = rows[::WIDTH], rows[1::WIDTH], rows[2::WIDTH]
    uniform = _pack_uniform(values, steps, times)
    return list(Reports.pack(map(_report, values, steps, times))) if uniform is None else [uniform]


def _pack_uniform(values: Sequence[dict[Any, Any]], steps: Sequence[Any], times: Iterable[float]) -> Reports | None:
    """Packs rows with the same names, whole columns at a time; `None` if they are not that simple."""
    names = (*values[0],)
    # No dictionary has a name twice, so all have the same names if these, in a row, are those of the first, repeated.
    if list(chain.from_iterable(values)) != [*names] * len(values):
        return None
    if steps.count(None) == len(steps):
        steps = [NO_STEP] * len(steps)
    numbers = list(chain.from_iterable(map(dict.values, values)))
    try:
        columns = array("H", bytes(2 * len(values))), array("q", steps), array("d", times), array("d", numbers)
    except (TypeError, OverflowError):
        return None  # a step or a value that a column can't hold
    return Reports([[_plain(name) for name in names]], columns=[column.tobytes() for column in columns])


def _report(values: dict[Any, Any], step: int | None, at: float) -> Report:
    """The report with values that are floats: NaN and infinity are what the user asked for."""
    return Report({_plain(name): as_float(value) for name, value in values.items()}, step, at)


def _plain(name: Any) -> str:
    """The name as valid text."""
    found = _plain_names.get(name)
    if found is None:
        found = plain(str(name))
        if len(_plain_names) < _MOST_NAMES:
            _plain_names[name] = found
    return found
