"""What the ranks of a job have written and displayed, in the order of arrival, over all attempts.

The entries are bytes, each ending with a newline, one after the other: lines, rich outputs, notices of the driver, and
the beginnings of attempts. A position in the log is a number of bytes from its beginning, which stays the same when the
oldest entries are removed. The contents of rich outputs are large, so they are in a second log, to which the entries
refer.
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from notebook_accel.errors import ConfigurationError, JobLostError
from notebook_accel.events import Cleared, Shown
from notebook_accel.launch.wire.plain_text import plain

MOST_LINES_IN_NOTEBOOK, MOST_CHARACTERS_IN_NOTEBOOK = 1000, 2**18
"""What a notebook shows of the beginning of a job's output, and as much of its end."""
MOST_IN_MEMORY = 8 * 2**20
"""Bytes that stay in memory if nothing stores them."""
_STREAMS = {"stdout": b"o", "stderr": b"e"}
_NAMES = {code: name for name, code in _STREAMS.items()}
SHOWN, CLEARED, NOTICE, ATTEMPT = b"d", b"c", b"n", b"a"
"""What an entry is that is not a line."""
WARNING, ERROR = 1, 2
"""The levels of lines; 0 if a line has none of these."""
_LEVEL = re.compile(
    r"\b(?:(?P<error>ERROR|CRITICAL|FATAL)|WARN(?:ING)?)\b|Warning: "
    r"|^(?P<raised>[\w.]*(?:Error|Exception)\b|Traceback \()"
)
_LEVEL_WITHIN = 160
"""The characters at the beginning of a line that may name its level."""
_PART = 2**17
"""Bytes that are read at once; more where a line is longer."""
PART = 2**18
"""Bytes of the log that are turned into text at once."""
_MOST_TEXT = 500
"""Characters of the text of a rich output that the log has, in case that its content is no longer there."""


class LogStore(Protocol):
    """Files that hold a log, or its end."""

    def extent(self) -> tuple[int, int]:
        """The positions of the first byte that is stored and of the end."""

    def append(self, position: int, data: bytes) -> None:
        """Adds bytes at a position, which is the end unless some are missing: all of them, or none.

        Raises:
            OSError: They can't be written.
        """

    def read(self, start: int, stop: int) -> bytes:
        """The bytes between two positions, as far as they are stored.

        Raises:
            OSError: They can't be read.
        """


class ByteLog:
    """Bytes, of which a store has the first and memory the last. Any thread may read while another adds and saves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._store: LogStore | None = None
        self._is_follower = False
        self._unsaved: deque[bytes] = deque()
        """What no store has, or what came after it."""
        self._unsaved_size = 0
        self._end = 0

    def append(self, data: bytes) -> int:
        """Adds bytes, unless another process fills the store. Returns their position."""
        with self._lock:
            position = self._end
            if self._is_follower:
                return position
            self._unsaved.append(data)
            self._unsaved_size += len(data)
            self._end += len(data)
            while self._unsaved_size > MOST_IN_MEMORY and len(self._unsaved) > 1:
                self._unsaved_size -= len(self._unsaved.popleft())
            return position

    @property
    def unsaved(self) -> int:
        """Bytes that no store has."""
        return self._unsaved_size

    def save(self, store: LogStore) -> None:
        """Moves what is in memory to a store.

        Raises:
            OSError: It can't be written. It is still in memory.
        """
        with self._lock:
            self._store = store
            if self._unsaved:
                store.append(self._end - self._unsaved_size, b"".join(self._unsaved))
                self._unsaved.clear()
                self._unsaved_size = 0

    def follow(self, store: LogStore) -> None:
        """Takes the store as one that another process fills."""
        with self._lock:
            self._store, self._is_follower = store, True

    def extent(self) -> tuple[int, int]:
        """The positions of the first byte that is still there, and of the end."""
        with self._lock:
            if self._is_follower:
                return (0, 0) if self._store is None else self._store.extent()
            begun = self._end - self._unsaved_size
            if self._store is None:
                return begun, self._end
            first, end = self._store.extent()
            return (first if first < end == begun else begun), self._end

    def read(self, start: int, stop: int) -> bytes:
        """The bytes between two positions, as far as they are there.

        Raises:
            OSError: They can't be read, for example because the job's folder was removed.
        """
        with self._lock:
            begun = self._end - self._unsaved_size
            if self._is_follower or stop <= begun:
                return b"" if self._store is None else self._store.read(start, stop)
            stored = b"" if self._store is None or start >= begun else self._store.read(start, begun)
            held = b"".join(self._unsaved)
            return stored + held[max(0, start - begun) : stop - begun]


class OutputLog(ByteLog):
    """The log of one job. If another process fills it, what is added here is in it already."""

    def __init__(self) -> None:
        super().__init__()
        self.contents = ByteLog()
        """The contents of rich outputs."""
        self._lines = self._characters = 0
        self._named: set[tuple[int, str]] = set()
        """The ranks and the IDs of rich outputs that can be updated."""

    @property
    def unsaved(self) -> int:
        """Bytes that no store has, also of contents."""
        return super().unsaved + self.contents.unsaved

    def add(self, rank: int, stream: str, at: float, texts: Sequence[str]) -> None:
        """Adds lines that a rank has written.

        Args:
            rank: The global rank.
            stream: `stdout` or `stderr`.
            at: Seconds since the job began.
            texts: The lines, without their newlines.
        """
        if texts and not self._is_follower:
            data = _encode(rank, _STREAMS[stream], int(1000 * at), texts)
            self._lines += len(texts)
            self._characters += len(data)
            self.append(data)

    def add_display(self, rank: int, event: Shown | Cleared) -> None:
        """Adds what a global rank has displayed or cleared."""
        if self._is_follower:
            return
        if isinstance(event, Cleared):
            self.append(_encode(rank, CLEARED, 0, ["wait" if event.wait else ""]))
            return
        content = b"".join(map(bytes, event.bundle))
        name = event.display_id
        fields = {
            "at": self.contents.append(content),
            "size": len(content),
            "display_id": name,
            "update": event.update,
            "alone": event.alone,
            "is_own": not event.update or (rank, name) in self._named,
            "text": text_of(content)[:_MOST_TEXT] if content else "",
        }
        if name is not None and content and not event.update:
            self._named.add((rank, name))
        self.append(_encode(rank, SHOWN, 0, [json.dumps(fields)]))

    def add_notice(self, text: str) -> None:
        """Adds what the driver tells the user."""
        self.append(_encode(0, NOTICE, 0, [json.dumps(text)]))

    def add_attempt(self, number: int) -> None:
        """Records that what comes is of this attempt."""
        self.append(_encode(0, ATTEMPT, 0, [str(number)]))

    @property
    def is_long(self) -> bool:
        """Whether more lines were added than a notebook is sure to show."""
        return self._lines > MOST_LINES_IN_NOTEBOOK or self._characters > MOST_CHARACTERS_IN_NOTEBOOK


def text_of(content: bytes) -> str:
    """The text of a rich output, from the JSON object in its bundle."""
    return str(json.loads(content)["data"].get("text/plain", ""))


@dataclass(frozen=True)
class LogLine:
    """One line that a rank has written."""

    position: int
    """Where it begins in the log, in bytes."""
    rank: int
    """The global rank."""
    stream: str
    """`stdout` or `stderr`."""
    at: int
    """Milliseconds since the job began."""
    text: str
    """As it was written, with codes for terminals."""

    @property
    def level(self) -> int:
        """Its level, as far as it names one."""
        found = _LEVEL.search(plain(self.text[:_LEVEL_WITHIN]))
        if found is None:
            return 0
        return ERROR if found["error"] or found["raised"] else WARNING


def _encode(rank: int, code: bytes, at: int, texts: Iterable[str]) -> bytes:
    """Entries as they are stored, each with its newline."""
    prefix = b"%d %s %d " % (rank, code, max(0, at))
    return b"".join([prefix + text.encode("utf-8", "replace").replace(b"\n", b" ") + b"\n" for text in texts])


def parts_of(stored: bytes) -> tuple[int, bytes, int, str] | None:
    """The rank, the code, the milliseconds, and the text of an entry; `None` if it is damaged."""
    parts = stored.split(b" ", 3)
    if len(parts) != 4 or not parts[0].isdigit() or not parts[2].isdigit():
        return None
    return int(parts[0]), parts[1], int(parts[2]), parts[3].decode("utf-8", "replace")


def line_stream(code: bytes) -> str | None:
    """The stream of a line with this code; `None` if the entry isn't a line."""
    return _NAMES.get(code)


def decode(position: int, stored: bytes) -> LogLine | None:
    """The line that is stored; `None` if the entry isn't a line, or is damaged."""
    parts = parts_of(stored)
    if parts is None or parts[1] not in _NAMES:
        return None
    rank, code, at, text = parts
    return LogLine(position, rank, _NAMES[code], at, text)


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
        self.size = 0
        """The bytes of the lines found so far."""
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
        return self.position <= self._until or len(self._found) >= self._most or self.size >= self._most_bytes

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
                self.size += len(stored)
            self.position = position
            if self.is_over:
                return
        self.position = start


def where_all_are(job: str) -> str:
    """Says where all lines of a job are: the end of a sentence."""
    return f"attach({job!r}).log(last=None) returns all lines"


def left_out(count: int | None, rest: str) -> str:
    """The line that stands for lines that are missing.

    Args:
        count: How many are missing; `None` if that isn't known.
        rest: The end of the sentence, such as that of `where_all_are`.
    """
    lines = "earlier lines are" if count is None else f"{count:,} line{'s are' if count > 1 else ' is'}"
    return f"… {lines} left out here; {rest} …"


def last_lines(
    log: OutputLog, known: Sequence[int], rank: int | None, last: int | None, text: str = ""
) -> list[LogLine]:
    """The last lines of a job with the ranks that are known, of those that contain a text; see `Job.log`."""
    if rank is not None and rank not in known:
        raise ConfigurationError(f"log(rank={rank!r}): the job has the ranks {known[0]} to {known[-1]}")
    if last is not None and (not isinstance(last, int) or last < 1):
        raise ConfigurationError(f"log(last={last!r}): give the number of lines, 1 or more, or None for all lines")
    scan = LogScan(log, LogFilter(rank, text=text.lower()), most=last or 2**62, most_bytes=2**62)
    try:
        scan.run(math.inf)
    except OSError as error:
        raise JobLostError(f"the log of the job can't be read: {error}") from error
    return scan.lines


def as_text(lines: Iterable[LogLine], *, labeled: bool) -> str:
    """The lines, each with its newline."""
    return "".join(f"[{line.rank}] {plain(line.text)}\n" if labeled else f"{plain(line.text)}\n" for line in lines)


def part(log: OutputLog, rank: int | None, after: int) -> tuple[str, int]:
    """The text of the next part of the log, and its end; the end is `after` if there is no more.

    Args:
        log: The log.
        rank: The global rank; `None` for all, labeled.
        after: The position where to begin.

    Raises:
        OSError: The log can't be read.
    """
    first, end = log.extent()
    start, size = max(after, first), PART
    while True:
        data = log.read(start, min(end, start + size))
        whole = data[: data.rfind(b"\n") + 1]
        if whole or start + size >= end:
            break
        size *= 2  # the line is longer
    return as_text(_of_rank(rank, start, whole), labeled=rank is None), (start + len(whole) if whole else after)


def _of_rank(rank: int | None, start: int, data: bytes) -> Iterator[LogLine]:
    for stored in data.split(b"\n")[:-1]:
        if rank is None or stored.startswith(b"%d " % rank):
            line = decode(start, stored)
            if line is not None:
                yield line
        start += len(stored) + 1
