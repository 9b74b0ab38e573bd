"""Shows what the ranks of a job write, as labeled lines, and what they display, at its place between the lines.

bytes of a rank ─▶ line_reader.py ─▶ lines ─▶ line_merger.py ─▶ lines of several ranks ─▶ screen
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from notebook_accel.events import Cleared, Shown
from notebook_accel.launch.show.displays import Displays
from notebook_accel.launch.show.line_merger import LineMerger
from notebook_accel.launch.show.line_reader import LineReader
from notebook_accel.launch.show.screens import BoundedScreen, Screen
from notebook_accel.rank_spans import spans

DISPLAY_WINDOW = 0.5
"""Seconds that a rich output waits for those of other ranks, which take longer to make than lines."""
_SHOW_INTERVAL = 0.2
"""The longest normal time between two calls of `Output.show`; beyond it, the waiting time of lines is extended."""
_DISPLAYED = "displayed"
"""A pseudo-stream for what is displayed between lines, such as figures."""


class Output:
    """Shows the output of the ranks of one job.

    Args:
        ranks: The ranks.
        label: Makes the label of a rank, or of several.
        screen: Shows their output.
        rest: Where the lines are that are too many for a notebook: the end of a sentence. Empty if none is too many.

    Attributes:
        on_lines: Called with a rank, a stream, and the lines that it has written there, each time that there are some.
    """

    def __init__(self, ranks: Sequence[int], label: Callable[[int | str], str], screen: Screen, rest: str = "") -> None:
        self.on_lines: Callable[[int, str, Sequence[str]], object] = lambda rank, stream, lines: None
        self._label = label
        self._screen = BoundedScreen(screen, rest)
        self._write = self._screen.write
        self._ranks = ranks
        self._merger = LineMerger(ranks)
        self._displays = Displays(ranks, label, self._screen)
        self._displayed: dict[tuple[int, str], Shown | Cleared] = {}
        """What is held of each rank, by its place."""
        self._displayed_counts: Counter[int] = Counter()
        self._places_passed = 0
        """How many of the places that ranks share have been shown; all lines that are held come after them."""
        self._readers = {(rank, stream): LineReader() for rank in ranks for stream in ("stdout", "stderr")}
        self._open: dict[tuple[int, str], LineReader] = {}
        """The readers with an unfinished line."""
        self._last_shown_at = 0.0

    def feed(self, rank: int, stream: str, data: bytes, now: float) -> None:
        """Adds bytes that a rank wrote."""
        reader = self._readers[rank, stream]
        self._add(rank, stream, reader.feed(data, now), now)
        if reader.is_open:
            self._open[rank, stream] = reader

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
        """Adds whole lines that a rank has written together, and that `on_lines` need not get."""
        self._merger.add(rank, stream, lines, now)

    def _add(self, rank: int, stream: str, lines: Sequence[str], now: float) -> None:
        if lines:
            self.on_lines(rank, stream, lines)
            self._merger.add(rank, stream, lines, now)

    def end(self, rank: int, now: float) -> None:
        """Ends the rank's streams; an unfinished line is one, since nothing more comes."""
        for stream in ("stdout", "stderr"):
            self._add(rank, stream, self._readers[rank, stream].rest(), now)
        self._merger.end(rank)

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
            self._add(rank, stream, reader.overdue(now), now)
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
