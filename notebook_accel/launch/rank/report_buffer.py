"""Holds a rank's reports until they are sent: in memory while they are few, otherwise in a file. None is left out."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import IO, Any

from notebook_accel.errors import StreamError
from notebook_accel.events import Report, Reports, as_float, from_wire, to_wire
from notebook_accel.events.emit import MetricsSink
from notebook_accel.events.reports import MOST_ROWS
from notebook_accel.launch.wire.stream import Decoder, encode
from notebook_accel.launch.wire.terminal_codes import plain

MOST_IN_MEMORY = 2**16
"""The number of reports in memory from which on they are moved to a file, some 20 MB."""
_READ = 2**20
"""Bytes of that file that are read at once."""

_MOST_NAMES = 1000
_plain_names: set[str] = set()
"""Names that are valid text: to look at each again would take most of the time that packing takes."""

_Sample = tuple[dict[str, float], "int | None", float]


class ReportBuffer:
    """The reports of one rank. Any thread adds, and one takes.

    A report never waits: if the driver does not read, the thread that reports moves what is held to a file, unless
    another thread is at it.
    """

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()
        self.lock = threading.Lock()
        """Held by the thread that removes samples."""
        self._file: IO[bytes] | None = None
        self._decoder = Decoder()
        self._read_to = 0
        self._in_file = 0
        """The reports in the file."""
        self._can_spill = True
        self.add = self._adder()
        """Adds what a `Metrics` event holds, as `(values, step)`, and owns `values` from then on."""

    def _adder(self) -> MetricsSink:
        """The function that adds: a closure, since loops call it at every step."""
        samples, append, now = self._samples, self._samples.append, time.time

        def add(values: dict[str, float], step: int | None) -> None:
            append((values, step, now()))
            if len(samples) >= MOST_IN_MEMORY:
                self._spill()

        return add

    @property
    def in_memory(self) -> int:
        """How many reports are held in memory."""
        return len(self._samples)

    def take(self) -> Iterator[Reports]:
        """Yields what is held now, in order; what is added in the meantime waits for the next call."""
        left = self._in_file + len(self._samples)
        while left > 0:
            for reports in self._next():
                left -= reports.count
                yield reports

    def _next(self) -> list[Reports]:
        with self.lock:
            if self._file is None:
                return list(Reports.pack(self._popped()))
            self._file.seek(self._read_to)
            data = self._file.read(_READ)
            self._read_to += len(data)
            found = [_decoded(header, blobs) for header, blobs in self._decoder.feed(data)]
            self._in_file -= sum(reports.count for reports in found)
            if not self._in_file:
                self._file.close()
                self._file = None
            return found

    def _popped(self) -> Iterator[Report]:
        pop: Callable[[], _Sample] = self._samples.popleft
        for _ in range(min(len(self._samples), MOST_ROWS)):
            yield _report(*pop())

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
                while len(self._samples) >= MOST_ROWS:
                    packed = list(Reports.pack(_report(*sample) for sample in self._first()))
                    data = memoryview(b"".join(_frame(reports) for reports in packed))
                    while data:
                        data = data[self._file.write(data) :]
                    end = self._file.tell()
                    for _ in range(MOST_ROWS):
                        self._samples.popleft()
                    self._in_file += MOST_ROWS
            except OSError:
                self._file.truncate(end)
                raise
        except OSError:
            self._can_spill = False  # the disk is full: memory is all there is
        finally:
            self.lock.release()

    def _first(self) -> list[_Sample]:
        """The first samples, which only the thread that holds the lock removes."""
        return [self._samples[index] for index in range(MOST_ROWS)]


def _report(values: dict[str, float], step: int | None, at: float) -> Report:
    """The report with names of valid text and values that are floats: NaN and infinity are what the user asked for."""
    if values.keys() <= _plain_names and all(type(value) is float for value in values.values()):
        return Report(values, step, at)
    if len(_plain_names) < _MOST_NAMES:
        _plain_names.update(name for name in values if type(name) is str and plain(name) == name)
    return Report({plain(str(name)): as_float(value) for name, value in values.items()}, step, at)


def _frame(reports: Reports) -> bytes:
    header, blobs = to_wire(reports)
    return b"".join((encode(header, blobs), *blobs))


def _decoded(header: dict[str, Any], blobs: list[bytearray]) -> Reports:
    event = from_wire(header, blobs)
    if not isinstance(event, Reports):
        raise StreamError(f"a {event.kind!r} event among reports")
    return event
