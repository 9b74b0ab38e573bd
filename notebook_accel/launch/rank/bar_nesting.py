"""Which bars of a rank are inside which, and how much of the outer one each stands for.

Bars of the user come from tqdm and the like, which know of each other only. Those of loaders and of
`Accelerator.epochs` take their places among them by the order in which they began.

Several bars may follow each other inside one unit of an outer bar, such as those of training and of validation in an
epoch. As their lengths say nothing of how long they take, each has the share of the time that the bar at its place took
in the unit before. In the first unit, the first bar stands for all of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from notebook_accel.events import Bar
from notebook_accel.launch.rank.patches import tqdm


@dataclass
class _Inner:
    """A bar inside a unit of another one."""

    bar: Bar
    index: int
    """How many were in that unit before it."""


@dataclass
class _Unit:
    """The current unit of a bar."""

    outer: Bar
    """The bar, as it was sent last."""
    bars: list[_Inner] = field(default_factory=list)
    before: list[float] = field(default_factory=list)
    """The seconds that each bar in the unit before took; empty in the first one."""
    part: float = 0.0
    """How much of the unit closed bars have done."""
    begun: float = 0.0
    """How much of the first unit was done before it began."""

    def advance(self, outer: Bar) -> None:
        """Takes the state of the bar, and begins its next unit if it has come to that."""
        if outer.n != self.outer.n:
            self.before = [each.bar.elapsed for each in self.bars] or self.before
            self.bars, self.part = [], 0.0
        self.outer = outer

    def take(self, bar: Bar) -> Bar:
        """The bar inside it, with its weight."""
        found = next((each for each in reversed(self.bars) if each.bar.bar == bar.bar and not each.bar.closed), None)
        if found is None or bar.n < found.bar.n:
            found = _Inner(bar, len(self.bars))
            self.bars.append(found)
            if bar.initial and bar.total and found.index == 0 and self.outer.n == self.outer.initial:
                self.begun = bar.initial / bar.total
        start, end = self._share(found.index)
        found.bar = replace(bar, weight=end - start)
        if bar.closed:
            done = max(0.0, min(1.0, bar.n / bar.total)) if bar.total else 1.0  # it may have been left early
            self.part = max(self.part, start + done * (end - start))
        return found.bar

    def _share(self, index: int) -> tuple[float, float]:
        """From where to where the bar at this place goes, as fractions of the unit."""
        whole = sum(self.before)
        if not whole:
            return float(index > 0), 1.0
        return min(1.0, sum(self.before[:index]) / whole), min(1.0, sum(self.before[: index + 1]) / whole)

    def place(self, bar: Bar) -> Bar:
        """The bar whose unit this is, with what is known of it."""
        return replace(bar, part=self.part, initial=bar.initial + self.begun)


class BarNesting:
    """The bars of a rank. Any thread adds those that no user draws; one takes.

    These are not sent while a bar that the user draws counts the same.
    """

    def __init__(self) -> None:
        self._latest: dict[int, Bar] = {}
        self._order: dict[int, int] = {}
        """For each bar that no user draws, where it would be among the numbers of those that users draw."""
        self._user_totals: dict[int, float | None] = {}
        """The total of each open bar that the user draws."""
        self._around: dict[int, int] = {}
        """How many bars are around each open one; for one of the user, beside those that it knows of."""
        self._open: list[int] = []
        """The bars that no user draws and that are sent, the outermost first."""
        self._hidden: set[int] = set()
        """Those that are not sent, until they close."""
        self._units: list[_Unit] = []
        """The open bars that have been sent, the outermost first."""
        self._passes: Counter[tuple[float | None, str]] = Counter()
        """How many outermost bars have closed, by what they count."""
        self._overtaken: Counter[int] = Counter()
        """How often a bar that no user draws has closed, and begun again before it was taken."""

    def add(self, bar: Bar) -> None:
        """Adds the state of a bar that no user draws."""
        before = self._latest.pop(bar.bar, None)
        began = before is not None and before.closed
        if began:
            self._overtaken[bar.bar] += 1
        if began or bar.bar not in self._order:
            self._order[bar.bar] = tqdm.new_number()
        self._latest[bar.bar] = bar

    def take(self, drawn: list[Bar], now: float) -> list[Bar]:
        """The events to send at this time, given those of the user's bars."""
        self._user_totals |= {bar.bar: bar.total for bar in drawn if not bar.closed}
        own = [replace(bar, at=now) for bar in self._own(drawn)]
        placed = [*map(self._place_users, drawn), *map(self._place_own, own)]
        for bar in placed:
            if bar.closed:  # only now: the last event of a loader comes while the user's bar around it is open
                self._user_totals.pop(bar.bar, None)
                self._around.pop(bar.bar, None)
        return self._weigh(placed, now)

    # Where they are

    def _own(self, drawn: list[Bar]) -> Iterable[Bar]:
        """Those to send of the bars that no user draws."""
        user_totals = {bar.total for bar in drawn} | {*self._user_totals.values()}
        for number in list(self._latest):
            bar = self._latest.pop(number)
            if bar.counts == "batches" and bar.total in user_totals - {None}:
                self._hidden.add(number)
            if number not in self._hidden:
                if number not in self._open:
                    self._open.append(number)
                yield bar
            elif number in self._open:  # it was shown before the user's bar opened
                yield replace(bar, closed=True, leave=False)
            if bar.closed:
                self._hidden.discard(number)
                if number not in self._open:
                    self._order.pop(number, None)

    def _place_users(self, bar: Bar) -> Bar:
        around = sum(self._order[number] < bar.bar for number in self._open)
        return replace(bar, depth=bar.depth + self._around.setdefault(bar.bar, around))

    def _place_own(self, bar: Bar) -> Bar:
        around = sum(number <= self._order[bar.bar] for number in self._user_totals) + self._open.index(bar.bar)
        placed = replace(bar, depth=self._around.setdefault(bar.bar, around))
        if bar.closed:
            self._open.remove(bar.bar)
            del self._order[bar.bar]
        return placed

    # How much of the outer one they are

    def _weigh(self, bars: list[Bar], now: float) -> list[Bar]:
        # What closes belongs to the unit that was current until then.
        ordered = sorted(bars, key=lambda bar: -1 - bar.depth if bar.closed else bar.depth)
        parts = {unit.outer.bar: unit.part for unit in self._units}
        found = {bar.bar: bar for bar in bars}
        for bar in ordered:
            depth = next((at for at, unit in enumerate(self._units) if unit.outer.bar == bar.bar), None)
            if depth is None:
                depth = sum(unit.outer.depth < bar.depth for unit in self._units)
            outer = self._units[depth - 1] if depth else None
            overtaken = self._overtaken.pop(bar.bar, 0)
            bar = outer.take(bar) if outer else self._counted(bar, overtaken)
            if depth < len(self._units) and self._units[depth].outer.bar == bar.bar:
                self._units[depth].advance(bar)
            elif bar.closed:
                found[bar.bar] = bar
                continue
            else:
                self._units[depth:] = [_Unit(bar)]
            found[bar.bar] = self._units[depth].place(bar)
            if bar.closed:
                del self._units[depth:]
        for unit in self._units:
            bar = unit.outer
            if bar.bar in found:
                found[bar.bar] = unit.place(bar)
            elif unit.part != parts.get(bar.bar):
                unit.outer = replace(bar, elapsed=bar.elapsed + now - bar.at, at=now)
                found[bar.bar] = unit.place(unit.outer)
        return [*found.values()]

    def _counted(self, bar: Bar, overtaken: int) -> Bar:
        """An outermost bar, with how many there have been, also those that it has `overtaken` since it was sent."""
        key = bar.total, bar.unit
        self._passes[key] += overtaken
        passes = self._passes[key]
        if bar.closed:
            self._passes[key] += 1
        return replace(bar, passes=passes)
