"""Turns the bytes that ranks write into labeled lines, and merges equal lines of several ranks.

A line waits briefly for the same line from other ranks. The lines of a rank are always shown in the order in which that
rank wrote them. The lines of a table are merged together or not at all.
"""

from __future__ import annotations

import bisect
import codecs
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from notebook_accel.events import Cleared, Shown
from notebook_accel.launch.show.bounded_screen import BoundedScreen
from notebook_accel.launch.show.displays import Displays, Screen
from notebook_accel.rank_spans import spans

MERGE_WINDOW = 0.1
"""Seconds that a line waits for the same line of other ranks."""
DISPLAY_WINDOW = 0.5
"""Seconds that a rich output waits for those of other ranks, which take longer to make than lines."""
PARTIAL_WINDOW = 0.5
"""Seconds after which an unfinished line is shown as it is."""
REDRAW_WINDOW = 5.0
"""The same for a line that is redrawn with carriage returns, such as a progress bar."""
_SHOW_INTERVAL = 0.2
"""The longest normal time between two calls of `Output.show`; beyond it, the waiting time of lines is extended."""
MAX_LINE = 64 * 1024
"""Characters after which an unfinished line is split."""
_MAX_HELD_LINES = 20_000
_MOST_CANDIDATES = 64
"""The number of held lines with the same text that a line is compared with, at most."""
_MAX_HELD_CHARACTERS = 4 * 2**20
"""Of the lines that wait, together: some are long."""


class LineReader:
    """Splits what one rank writes to one stream into lines."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._partial = ""
        self._since: float | None = None

    def feed(self, data: bytes, now: float) -> list[str]:
        """The lines that `data` completes."""
        text = self._partial + self._decoder.decode(data)
        *lines, self._partial = text.split("\n")
        lines += self._limit()
        if not self._partial:
            self._since = None
        elif lines or self._since is None:
            self._since = now
        return [_last_drawn(line) for line in lines]

    @property
    def is_open(self) -> bool:
        """Whether there is an unfinished line."""
        return self._since is not None

    def extend(self, seconds: float, now: float) -> None:
        """Extends the waiting time of the unfinished line: its end may have arrived, but not been read."""
        if self._since is not None:
            self._since = min(now, self._since + seconds)

    def overdue(self, now: float) -> list[str]:
        """The unfinished line, once it has waited long enough."""
        if self._since is None:
            return []
        window = REDRAW_WINDOW if "\r" in self._partial else PARTIAL_WINDOW
        return self._take_partial() if now - self._since >= window else []

    def rest(self) -> list[str]:
        """The unfinished line at the end of the stream."""
        self._partial += self._decoder.decode(b"", final=True)
        return self._take_partial()

    def _limit(self) -> list[str]:
        """Bounds the unfinished line: drops what was drawn over, and splits what is too long."""
        lines = []
        if "\r" in self._partial:
            before, _, last = self._partial.rpartition("\r")
            self._partial = f"\r{_last_drawn(before)}\r{last}"
        while len(self._partial) > MAX_LINE:
            lines.append(self._partial[:MAX_LINE])
            self._partial = self._partial[MAX_LINE:]
        return lines

    def _take_partial(self) -> list[str]:
        line = _last_drawn(self._partial)
        self._partial, self._since = "", None
        return [line] if line else []


def _last_drawn(line: str) -> str:
    """The last text drawn on a line with carriage returns, which is nearly what a terminal shows."""
    if "\r" not in line:
        return line
    return next((part for part in reversed(line.split("\r")) if part.strip()), "")


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

        They wait for so many seconds for those of others; by default for `MERGE_WINDOW`.
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


_DISPLAYED = "displayed"
"""A pseudo-stream for what is displayed between lines, such as figures."""


class Output:
    """Shows the output of the ranks of one job.

    Args:
        ranks: The ranks.
        label: Makes the label of a rank, or of several.
        screen: Shows their output.
        rest: Where the lines are that are too many for a notebook: the end of a sentence. Empty if none is too many.
    """

    def __init__(self, ranks: Sequence[int], label: Callable[[int | str], str], screen: Screen, rest: str = "") -> None:
        self._label = label
        self._screen = BoundedScreen(screen, rest)
        self._write = self._screen.write
        self._ranks = ranks
        self._merger = LineMerger(ranks)
        self._displays = Displays(label, self._screen)
        self._displayed: dict[tuple[int, str], Shown | Cleared] = {}
        """What is held of each rank, by its place."""
        self._displayed_counts: Counter[int] = Counter()
        self._places_passed = 0
        """How many of the places that ranks share have been shown; all lines that are held come after them."""
        self._readers = {(rank, stream): LineReader() for rank in ranks for stream in ("stdout", "stderr")}
        self._open: dict[tuple[int, str], LineReader] = {}
        """The readers with an unfinished line."""
        self._last_shown_at = 0.0

    def feed(self, rank: int, stream: str, data: bytes, now: float) -> list[str]:
        """Adds bytes that a rank wrote; returns the lines that they complete."""
        reader = self._readers[rank, stream]
        lines = reader.feed(data, now)
        if reader.is_open:
            self._open[rank, stream] = reader
        self._merger.add(rank, stream, lines, now)
        return lines

    def display(self, rank: int, event: Shown | Cleared, now: float) -> None:
        """Shows a rich output between the lines that a rank has written before and those that it writes from now on.

        The nth of each rank share a place, where they are shown in the order of the ranks. What is not shown of a rank
        counts all the same, so that equal lines before and after it are merged whichever rank comes first.
        """
        self._displayed_counts[rank] += 1
        is_hidden = isinstance(event, Shown) and not event.bundle
        if is_hidden and self._displayed_counts[rank] <= self._places_passed:
            return  # a place of its own would lie behind the equal lines that follow
        place = str(self._displayed_counts[rank])
        if not is_hidden:
            self._displayed[rank, place] = event
        waits = self._may_others_follow(rank) and not (isinstance(event, Shown) and event.alone and not is_hidden)
        self._merger.add(rank, _DISPLAYED, [place], now, DISPLAY_WINDOW if waits else 0)

    def _may_others_follow(self, rank: int) -> bool:
        """Whether another rank has come as far as what was shown last; otherwise it displays less often, or is late."""
        others = (other for other in self._ranks if other != rank)
        return any(self._displayed_counts[other] >= self._places_passed for other in others)

    def add(self, rank: int, stream: str, lines: Sequence[str], now: float) -> None:
        """Adds whole lines that a rank has written together."""
        self._merger.add(rank, stream, lines, now)

    def end(self, rank: int, now: float) -> list[str]:
        """Ends the rank's streams; returns its unfinished lines."""
        left = []
        for stream in ("stdout", "stderr"):
            lines = self._readers[rank, stream].rest()
            self._merger.add(rank, stream, lines, now)
            left += lines
        self._merger.end(rank)
        return left

    @property
    def next_due(self) -> float | None:
        """When `show` has something to write next; `None` if nothing is held."""
        return self._merger.next_due

    def show(self, now: float, *, all_of_it: bool = False) -> None:
        """Writes the lines that are due, with a single write for consecutive lines of one stream."""
        late, self._last_shown_at = now - self._last_shown_at - _SHOW_INTERVAL, now
        for reader in self._open.values() if late > 0 else ():
            reader.extend(late, now)
        for (rank, stream), reader in list(self._open.items()):
            self._merger.add(rank, stream, reader.overdue(now), now)
            if not reader.is_open:
                del self._open[rank, stream]
        batch: list[str] = []
        stream = ""
        for shown, text, ranks in self._merger.due(now, all_of_it=all_of_it):
            if shown != stream and batch:
                self._write(stream, "".join(batch))
                batch = []
            stream = shown
            if stream == _DISPLAYED:
                self._places_passed = max(self._places_passed, int(text))
                there = {rank: self._displayed.pop((rank, text), None) for rank in ranks}
                self._displays.show({rank: event for rank, event in there.items() if event is not None}, int(text))
                continue
            label = self._label(ranks[0] if len(ranks) == 1 else spans(ranks))
            batch.append(f"{label}{text}\n")
        if batch:
            self._write(stream, "".join(batch))
        self._screen.refresh(now, is_last=all_of_it)
