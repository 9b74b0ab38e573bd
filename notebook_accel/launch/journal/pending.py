"""What a journal has yet to write."""

from __future__ import annotations

from collections import Counter, deque

from notebook_accel.events import AttemptStarted, Bar, Event, Heartbeat, Line, LinesLeftOut
from notebook_accel.launch.journal.lines import encode

_MOST_LINES = 2000
"""How many lines of a rank are written each time."""


class Pending:
    """What has yet to be written; of what only its latest state matters, that alone."""

    def __init__(self) -> None:
        self._count = 0
        self._events: dict[object, tuple[int | None, Event]] = {}
        self._lines: dict[int | None, deque[int]] = {}
        self._dropped: Counter[int | None] = Counter()

    def add(self, rank: int | None, event: Event) -> None:
        self._count += 1
        if isinstance(event, Bar):
            self._events[rank, event.bar] = rank, event  # stays where it began, as in the fold
        elif isinstance(event, Heartbeat):
            self._events[rank, Heartbeat] = rank, event
        elif isinstance(event, LinesLeftOut):
            self._dropped[rank] += event.count
        elif isinstance(event, Line):
            self._events[self._count] = rank, event
            self._bound(rank)
        else:
            if isinstance(event, AttemptStarted):
                self._drop_rank_events()  # it makes all of them new
            self._events[self._count] = rank, event

    def take(self) -> bytes:
        """All of it, as lines."""
        dropped = ((rank, LinesLeftOut(count)) for rank, count in self._dropped.items())
        data = b"".join(encode(rank, event) for rank, event in (*dropped, *self._events.values()))
        self._clear()
        return data

    def _bound(self, rank: int | None) -> None:
        """Of a flood of lines of a rank, the last."""
        lines = self._lines.setdefault(rank, deque())
        lines.append(self._count)
        if len(lines) > _MOST_LINES:
            del self._events[lines.popleft()]
            self._dropped[rank] += 1

    def _drop_rank_events(self) -> None:
        ours = {key: told for key, told in self._events.items() if told[0] is None}
        self._clear()
        self._events = ours

    def _clear(self) -> None:
        self._events.clear()
        self._lines.clear()
        self._dropped.clear()
