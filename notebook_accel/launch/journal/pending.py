"""The events that a journal has not written yet."""

from __future__ import annotations

from collections import Counter, deque

from notebook_accel.events import (
    AttemptStarted,
    Bar,
    Event,
    GpuUsage,
    Heartbeat,
    Line,
    LinesLeftOut,
    MemoryPeaks,
    MemorySnapshot,
    ProcessUsage,
    Reports,
    Shown,
    StepTimes,
)
from notebook_accel.launch.job.kept_displays import reduced, size_of
from notebook_accel.launch.journal.lines import encode

_MOST_LINES = 2000
"""The most lines of a rank that are written at a time."""
_MOST_TEXT = 2**20
"""The most characters of these lines together; more than a rank's state stores."""
_MOST_DISPLAYED = 8 * 2**20
"""The most bytes of a rank's rich outputs that are written at a time; more than a rank's state stores."""


class Pending:
    """Events to write: only the latest state of each bar, heartbeat and step times, and the last of many lines."""

    def __init__(self) -> None:
        self._count = 0
        self._events: dict[object, tuple[int | None, Event]] = {}
        self._lines: dict[int | None, deque[tuple[int, int]]] = {}
        """For each rank, the key and the characters of each of its lines."""
        self._characters: Counter[int | None] = Counter()
        self._dropped: Counter[int | None] = Counter()
        self._displays: dict[int | None, dict[int, int]] = {}
        """For each rank, the bytes of each of its rich outputs, by its key."""

    def add(self, rank: int | None, event: Event) -> None:
        self._count += 1
        if isinstance(event, (Reports, MemorySnapshot, ProcessUsage, GpuUsage)):
            return  # the first two have files of their own; what ranks use is read by the process that shows the job
        if isinstance(event, Bar):
            self._events[rank, event.bar] = rank, event  # keeps the position of the first event, as the fold does
        elif isinstance(event, (Heartbeat, MemoryPeaks, StepTimes)):
            self._events[rank, type(event)] = rank, event
        elif isinstance(event, LinesLeftOut):
            self._drop_lines(rank)  # they would seem to be followed by the next ones
            self._dropped[rank] += event.count
        elif isinstance(event, Line):
            self._events[self._count] = rank, event
            self._bound(rank, len(event.text))
        elif isinstance(event, Shown):
            self._events[self._count] = rank, event
            self._bound_displays(rank, event)
        else:
            if isinstance(event, AttemptStarted):
                self._drop_rank_events()  # the fold creates all ranks anew
            self._events[self._count] = rank, event

    def take(self) -> bytes:
        """Removes all events, and returns them as lines of the file."""
        dropped = ((rank, LinesLeftOut(count)) for rank, count in self._dropped.items())
        data = b"".join(encode(rank, event) for rank, event in (*dropped, *self._events.values()))
        self._clear()
        return data

    def _bound(self, rank: int | None, characters: int) -> None:
        """Drops the oldest lines of a rank that has too many."""
        lines = self._lines.setdefault(rank, deque())
        lines.append((self._count, characters))
        self._characters[rank] += characters
        while len(lines) > _MOST_LINES or (self._characters[rank] > _MOST_TEXT and len(lines) > 1):
            key, dropped = lines.popleft()
            del self._events[key]
            self._characters[rank] -= dropped
            self._dropped[rank] += 1

    def _drop_lines(self, rank: int | None) -> None:
        """Drops all lines of a rank."""
        for key, characters in self._lines.pop(rank, ()):
            del self._events[key]
            self._characters[rank] -= characters
            self._dropped[rank] += 1

    def _bound_displays(self, rank: int | None, event: Shown) -> None:
        """Reduces the oldest rich outputs of a rank that has too many."""
        sizes = self._displays.setdefault(rank, {})
        sizes[self._count] = size_of(event)
        while sum(sizes.values()) > _MOST_DISPLAYED and len(sizes) > 1:
            key = next(iter(sizes))
            del sizes[key]
            _, oldest = self._events[key]
            assert isinstance(oldest, Shown)
            self._events[key] = rank, reduced(oldest)

    def _drop_rank_events(self) -> None:
        of_job = {key: entry for key, entry in self._events.items() if entry[0] is None}
        self._clear()
        self._events = of_job

    def _clear(self) -> None:
        self._events.clear()
        self._lines.clear()
        self._characters.clear()
        self._dropped.clear()
        self._displays.clear()
