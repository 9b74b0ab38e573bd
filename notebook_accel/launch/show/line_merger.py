"""Merges equal lines of several ranks.

A line waits briefly for the same line from other ranks. The lines of a rank are always shown in the order in which that
rank wrote them. The lines of a table are merged together or not at all.
"""

from __future__ import annotations

import bisect
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

MERGE_WINDOW = 0.1
"""Seconds that a line waits for the same line of other ranks."""
_MAX_HELD_LINES = 20_000
_MOST_CANDIDATES = 64
"""The number of held lines with the same text that a line is compared with, at most."""
_MAX_HELD_CHARACTERS = 4 * 2**20
"""Of the lines that wait, together: some are long."""


@dataclass
class _Line:
    stream: str
    text: str
    number: int
    deadline: float
    block: Sequence[str]
    """The lines that its first rank has written together with it."""
    at: int
    """Its index among them."""
    ranks: set[int] = field(default_factory=set)


class _SameLines:
    """The held lines with the same text, in order."""

    def __init__(self) -> None:
        self._lines: list[_Line] = []
        self._dropped = 0
        """How many at the beginning of the list have been shown."""

    def __bool__(self) -> bool:
        return self._dropped < len(self._lines)

    def append(self, held: _Line) -> None:
        self._lines.append(held)

    def drop_first(self) -> None:
        self._dropped += 1
        if self._dropped > len(self._lines) // 2:
            del self._lines[: self._dropped]
            self._dropped = 0

    def after(self, number: int) -> Iterator[_Line]:
        at = bisect.bisect_right(self._lines, number, lo=self._dropped, key=lambda held: held.number)
        return (self._lines[index] for index in range(at, min(len(self._lines), at + _MOST_CANDIDATES)))


class LineMerger:
    """Holds lines for a moment, so that a line that several ranks write is shown once."""

    def __init__(self, ranks: Iterable[int]) -> None:
        self._running = set(ranks)
        self._single = len(self._running) <= 1
        self._count = 0
        self._held: OrderedDict[int, _Line] = OrderedDict()
        self._held_characters = 0
        self._same: dict[tuple[str, str], _SameLines] = {}
        self._last: dict[int, _Line] = {}
        """Each rank's last line."""

    def add(self, rank: int, stream: str, lines: Sequence[str], now: float, window: float | None = None) -> None:
        """Adds lines that a rank has written together.

        They wait for the lines of other ranks for `window` seconds; by default, for `MERGE_WINDOW`.
        """
        deadline = now + (0 if self._single else MERGE_WINDOW if window is None else window)
        for at, text in enumerate(lines):
            held = None if self._single else self._joinable(rank, stream, lines, at)
            if held is None:
                self._count += 1
                held = _Line(stream, text, self._count, deadline, lines, at)
                self._held[held.number] = held
                self._held_characters += len(text)
                self._same.setdefault((stream, text), _SameLines()).append(held)
            held.deadline = min(held.deadline, deadline)
            held.ranks.add(rank)
            self._last[rank] = held

    def end(self, rank: int) -> None:
        """Records that this rank writes no more lines."""
        self._running.discard(rank)

    def due(self, now: float, *, all_of_it: bool = False) -> list[tuple[str, str, list[int]]]:
        """The lines to show now, as `(stream, text, ranks)`."""
        shown = []
        while self._held:
            held = next(iter(self._held.values()))
            if not (all_of_it or self._due_at(held) <= now or self._holds_too_much):
                break
            del self._held[held.number]
            self._held_characters -= len(held.text)
            same = self._same[held.stream, held.text]
            same.drop_first()
            if not same:
                del self._same[held.stream, held.text]
            shown.append((held.stream, held.text, sorted(held.ranks)))
        return shown

    @property
    def _holds_too_much(self) -> bool:
        return len(self._held) > _MAX_HELD_LINES or self._held_characters > _MAX_HELD_CHARACTERS

    @property
    def next_due(self) -> float | None:
        """When the next line is due; `None` without one."""
        return self._due_at(next(iter(self._held.values()))) if self._held else None

    def _due_at(self, held: _Line) -> float:
        return 0.0 if held.ranks >= self._running else held.deadline

    def _joinable(self, rank: int, stream: str, lines: Sequence[str], at: int) -> _Line | None:
        """The first held line that a line of the rank can be merged with, without reordering or tearing its lines.

        A line of a table belongs to the lines around it, so it is merged only with one whose next lines are equal too.

        Args:
            rank: The rank.
            stream: The stream.
            lines: The lines that the rank has written together.
            at: The index of the line.
        """
        same = self._same.get((stream, lines[at]))
        if same is None:
            return None
        last = self._last.get(rank)
        for held in same.after(0 if last is None else last.number):
            if (
                len(lines) == 1
                or not _TABULAR.match(lines[at])
                or _continues(held, last)
                or (held.at == 0 and _are_alike(held, lines, at))
            ):
                return held
        return None


_TABULAR = re.compile(r"\W*$|\s\s+\S|.*\S(?:\s\s+|\s*[|│]\s*)\S")
"""A line of a table: a border, or columns."""


def _continues(held: _Line, before: _Line | None) -> bool:
    """Whether a held line follows another one in the same block of lines."""
    return before is not None and held.block is before.block and held.at == before.at + 1


def _are_alike(held: _Line, lines: Sequence[str], at: int) -> bool:
    """Whether what follows a held line in its block is what follows in these lines, as far as both go."""
    count = min(len(held.block) - held.at, len(lines) - at)
    return held.block[held.at : held.at + count] == lines[at : at + count]
