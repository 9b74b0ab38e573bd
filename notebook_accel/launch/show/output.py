"""From the bytes that ranks write to labelled lines: each whole, in its rank's order, equal ones once.

A line waits a moment for the same line of other ranks. What it never does is overtake: the lines of a rank are shown in
the order in which that rank wrote them.
"""

from __future__ import annotations

import bisect
import codecs
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from notebook_accel.launch.job.text import spans

MERGE_WINDOW = 0.1
"""Seconds that a line waits for the same line of other ranks."""
PARTIAL_WINDOW = 0.5
"""Seconds after which a line that has not ended is shown as far as it goes."""
REDRAW_WINDOW = 5.0
"""The same for a line that is drawn over with carriage returns, such as a progress bar."""
_LOOK = 0.2
"""Seconds between two looks at what has been written, or more; a line does not wait for its end while nobody looks."""
MAX_LINE = 64 * 1024
"""Characters after which a line that does not end is broken."""
_MAX_HELD = 20_000


class LineReader:
    """Cuts what one rank writes to one stream into lines."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._partial = ""
        self._since: float | None = None

    def feed(self, data: bytes, now: float) -> list[str]:
        """The lines that `data` completes."""
        text = self._partial + self._decoder.decode(data)
        *lines, self._partial = text.split("\n")
        lines += self._bound()
        if not self._partial:
            self._since = None
        elif lines or self._since is None:
            self._since = now
        return [_last_drawn(line) for line in lines]

    @property
    def is_open(self) -> bool:
        """Whether there is a line that has not ended."""
        return self._since is not None

    def excuse(self, seconds: float, now: float) -> None:
        """Does not count some seconds in which its end may have come, unheard."""
        if self._since is not None:
            self._since = min(now, self._since + seconds)

    def overdue(self, now: float) -> list[str]:
        """A line that has not ended, once it has waited long enough."""
        if self._since is None:
            return []
        window = REDRAW_WINDOW if "\r" in self._partial else PARTIAL_WINDOW
        return self._take_partial() if now - self._since >= window else []

    def rest(self) -> list[str]:
        """Whatever has not been shown, when nothing more comes."""
        self._partial += self._decoder.decode(b"", final=True)
        return self._take_partial()

    def _bound(self) -> list[str]:
        """Keeps a line that does not end from growing: forgets what was drawn over, and breaks what is too long."""
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
    """What a terminal would show of a line with carriage returns, nearly: what was drawn last."""
    if "\r" not in line:
        return line
    return next((part for part in reversed(line.split("\r")) if part.strip()), "")


@dataclass
class _Held:
    stream: str
    text: str
    number: int
    deadline: float
    ranks: set[int] = field(default_factory=set)


class _Equals:
    """The held lines of one text, in their order."""

    def __init__(self) -> None:
        self._lines: list[_Held] = []
        self._gone = 0
        """How many at the beginning have been shown."""

    def __bool__(self) -> bool:
        return self._gone < len(self._lines)

    def append(self, held: _Held) -> None:
        self._lines.append(held)

    def drop_first(self) -> None:
        self._gone += 1
        if self._gone > len(self._lines) // 2:
            del self._lines[: self._gone]
            self._gone = 0

    def first_after(self, number: int) -> _Held | None:
        at = bisect.bisect_right(self._lines, number, lo=self._gone, key=lambda held: held.number)
        return self._lines[at] if at < len(self._lines) else None


class LineMerger:
    """Holds lines for a moment, so that those which several ranks write alike are shown once."""

    def __init__(self, ranks: Iterable[int]) -> None:
        self._live = set(ranks)
        self._alone = len(self._live) <= 1
        self._count = 0
        self._held: OrderedDict[int, _Held] = OrderedDict()
        self._same: dict[tuple[str, str], _Equals] = {}
        self._last: dict[int, int] = {}
        """The number of the last line that each rank has a part in."""

    def add(self, rank: int, stream: str, lines: Sequence[str], now: float) -> None:
        for text in lines:
            held = None if self._alone else self._find(rank, stream, text)
            if held is None:
                self._count += 1
                held = _Held(
                    stream, text, self._count, now + (0 if self._alone or stream == _INTERPOSED else MERGE_WINDOW)
                )
                self._held[held.number] = held
                self._same.setdefault((stream, text), _Equals()).append(held)
            held.ranks.add(rank)
            self._last[rank] = held.number

    def end(self, rank: int) -> None:
        """No more lines come from this rank."""
        self._live.discard(rank)

    def due(self, now: float, *, all_of_it: bool = False) -> list[tuple[str, str, list[int]]]:
        """The lines to show now, as `(stream, text, ranks)`."""
        shown = []
        while self._held:
            held = next(iter(self._held.values()))
            if not (all_of_it or self._due_at(held) <= now or len(self._held) > _MAX_HELD):
                break
            del self._held[held.number]
            same = self._same[held.stream, held.text]
            same.drop_first()
            if not same:
                del self._same[held.stream, held.text]
            shown.append((held.stream, held.text, sorted(held.ranks)))
        return shown

    @property
    def next_due(self) -> float | None:
        """When the next line is to be shown, as far as is known; `None` if there is none."""
        return self._due_at(next(iter(self._held.values()))) if self._held else None

    def _due_at(self, held: _Held) -> float:
        return 0.0 if held.ranks >= self._live else held.deadline

    def _find(self, rank: int, stream: str, text: str) -> _Held | None:
        """The first such line that the rank may join without its lines changing their order."""
        same = self._same.get((stream, text))
        return None if same is None else same.first_after(self._last.get(rank, 0))


_INTERPOSED = "interposed"
"""The stream of what is no line."""


class Output:
    """All that the ranks of one launch write."""

    def __init__(
        self, ranks: Sequence[int], label: Callable[[int | str], str], write: Callable[[str, str], None]
    ) -> None:
        self._label = label
        self._write = write
        self._merger = LineMerger(ranks)
        self._interposed: dict[str, Callable[[], object]] = {}
        self._shown_so_far = 0
        self._readers = {(rank, stream): LineReader() for rank in ranks for stream in ("stdout", "stderr")}
        self._open: dict[tuple[int, str], LineReader] = {}
        """Those with a line that has not ended."""
        self._looked = 0.0

    def feed(self, rank: int, stream: str, data: bytes, now: float) -> list[str]:
        """Takes in what a rank wrote; returns the lines that it completes."""
        reader = self._readers[rank, stream]
        lines = reader.feed(data, now)
        if reader.is_open:
            self._open[rank, stream] = reader
        self._merger.add(rank, stream, lines, now)
        return lines

    def interpose(self, rank: int, show: Callable[[], object], now: float) -> None:
        """Has something else shown between what a rank has written before, and what it writes from now on."""
        self._shown_so_far += 1
        name = str(self._shown_so_far)
        self._interposed[name] = show
        self._merger.add(rank, _INTERPOSED, [name], now)

    def add(self, rank: int, stream: str, text: str, now: float) -> None:
        """Takes in a line that is whole already."""
        self._merger.add(rank, stream, [text], now)

    def end(self, rank: int, now: float) -> list[str]:
        """Nothing more comes from this rank; returns what was left of its last lines."""
        left = []
        for stream in ("stdout", "stderr"):
            lines = self._readers[rank, stream].rest()
            self._merger.add(rank, stream, lines, now)
            left += lines
        self._merger.end(rank)
        return left

    @property
    def next_due(self) -> float | None:
        """When there is something to `show` that is known of by now; `None` for nothing."""
        return self._merger.next_due

    def show(self, now: float, *, all_of_it: bool = False) -> None:
        """Writes the lines that are due, runs of one stream at once."""
        away, self._looked = now - self._looked - _LOOK, now
        for reader in self._open.values() if away > 0 else ():
            reader.excuse(away, now)
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
            if stream == _INTERPOSED:
                self._interposed.pop(text)()
                continue
            label = self._label(ranks[0] if len(ranks) == 1 else spans(ranks))
            batch.append(f"{label}{text}\n")
        if batch:
            self._write(stream, "".join(batch))
