"""Reads lines of a log that match a filter, from the end towards the beginning, a part at a time."""

from __future__ import annotations

import time
from dataclasses import dataclass

from notebook_accel.launch.job.logs.log_lines import LogLine, decode
from notebook_accel.launch.job.logs.output_log import OutputLog
from notebook_accel.launch.wire.terminal_codes import plain

_PART = 2**17
"""Bytes that are read at once; more where a line is longer."""


@dataclass(frozen=True)
class LogFilter:
    """Which lines to find."""

    rank: int | None = None
    """The global rank; `None` for all."""
    stream: str = ""
    """`stdout` or `stderr`; empty for both."""
    level: int = 0
    """The least level."""
    text: str = ""
    """What a line contains, in lowercase; compared without codes for terminals."""

    def find(self, position: int, stored: bytes) -> LogLine | None:
        """The line that is stored, if it matches."""
        if self.rank is not None and not stored.startswith(b"%d " % self.rank):
            return None
        line = decode(position, stored)
        if line is None or (self.stream and line.stream != self.stream) or (self.level and line.level < self.level):
            return None
        return line if self.text in plain(line.text).lower() else None


class LogScan:
    """Finds the last lines before a position.

    Args:
        log: The log.
        matching: The filter.
        before: The position; `None` for the end.
        until: The position where to end the search.
        most: The number of lines after which to end it.
        most_bytes: The bytes of lines after which to end it.
    """

    def __init__(
        self,
        log: OutputLog,
        matching: LogFilter,
        before: int | None = None,
        until: int = 0,
        most: int = 1000,
        most_bytes: int = 2**18,
    ) -> None:
        self._log = log
        self._matching = matching
        self._first, end = log.extent()
        self.position = end if before is None else min(before, end)
        """Where the search has come to."""
        self._until = max(until, self._first)
        self._most, self._most_bytes = most, most_bytes
        self._found: list[LogLine] = []
        self._size = 0
        self.end = self._end()

    @property
    def lines(self) -> list[LogLine]:
        """The lines found so far, in the order of the log."""
        return self._found[::-1]

    @property
    def has_more(self) -> bool:
        """Whether there are lines before those that were searched."""
        return self.position > self._first

    @property
    def is_over(self) -> bool:
        return self.position <= self._until or len(self._found) >= self._most or self._size >= self._most_bytes

    def run(self, deadline: float) -> bool:
        """Searches until it is over, or until a time of the monotonic clock. Returns whether it is over.

        Raises:
            OSError: The log can't be read.
        """
        while not self.is_over:
            self._search(*self._part())
            if time.monotonic() > deadline:
                break
        return self.is_over

    def _end(self) -> int:
        """The end of the last whole line: another process may be writing the next one."""
        size = _PART
        while self.position > self._first:
            start = max(self._first, self.position - size)
            at = self._log.read(start, self.position).rfind(b"\n")
            if at >= 0:
                self.position = start + at + 1
                break
            if start == self._first:
                self.position = start
            size *= 2
        return self.position

    def _part(self) -> tuple[int, bytes]:
        """The whole lines before the position, and where they begin."""
        size = _PART
        while True:
            start = max(self._until, self.position - size)
            data = self._log.read(start, self.position)
            if start == self._until or not data:
                return start, data
            at = data.find(b"\n", 0, -1)
            if at >= 0:
                return start + at + 1, data[at + 1 :]
            size *= 2

    def _search(self, start: int, data: bytes) -> None:
        position = self.position
        for stored in reversed(data.split(b"\n")[:-1]):
            position -= len(stored) + 1
            line = self._matching.find(position, stored)
            if line is not None:
                self._found.append(line)
                self._size += len(stored)
            self.position = position
            if self.is_over:
                return
        self.position = start
