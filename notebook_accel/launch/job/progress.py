"""What views show about a job, computed from its fold: progress, metrics, failures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

from notebook_accel.events import Bar, Phase
from notebook_accel.launch.job.metric_charts import Drawing
from notebook_accel.launch.job.rank_state import LOST_CONNECTION, WAITS_FOR_INPUT, RankState
from notebook_accel.launch.job.text import count, rate
from notebook_accel.launch.wire import stack_frames
from notebook_accel.launch.wire.plain_text import plain

if TYPE_CHECKING:
    from notebook_accel.launch.job.job_state import JobState

COMPACT_FROM = 17
"""The number of ranks from which on a job is drawn as a grid."""
_BRIEF = 1.0
"""Seconds before the ranks of a job without bars or metrics are listed. For most jobs, one line is enough."""
_LONGEST = 1e10
"""Seconds, some 300 years: a longer estimate is not shown. Quotients of extreme numbers may even be infinite."""
_MAIN = "loss"
_BEHIND = 0.8
"""A rank below this fraction of the median progress is marked."""


@dataclass(frozen=True)
class Progress:
    """The progress of a rank, read from its bars."""

    bars: Sequence[Bar]
    """The bars to show, outermost first."""

    @cached_property
    def _counted(self) -> Sequence[Bar]:
        """The bars that count how much is done: without those that only count the same epochs once more."""
        for at, bar in enumerate(self.bars):
            if bar.counts == "epochs":
                is_same = all(outer.total in (None, bar.total) for outer in self.bars[:at])
                return self.bars[at:] if is_same else self.bars
        return self.bars

    @cached_property
    def fraction(self) -> float | None:
        """The fraction of the outermost bar, including the part of its current unit that inner bars show."""
        part: float | None = None
        weight = 1.0
        for bar in reversed(self._counted):
            if bar.total:
                unit = bar.part + weight * part if part else bar.part
                part = (bar.n + (unit if unit < 1.0 else 1.0)) / bar.total
                part = 0.0 if part < 0.0 else 1.0 if part > 1.0 else part
            elif bar is self._counted[0]:
                return None
            weight = bar.weight
        return part

    @property
    def is_whole(self) -> bool:
        """Whether the outermost bar counts all that the rank does, as far as that is known.

        A loader's bar counts one pass, of which there may be more. So does a bar of the user, once another one counts
        as much after it.
        """
        return bool(self.bars) and self._counted[0].counts != "batches" and not self._counted[0].passes

    @property
    def passes(self) -> int:
        """How many passes are done."""
        return self._counted[0].passes if self.bars else 0

    @cached_property
    def remaining(self) -> float | None:
        """The estimated seconds left; `None` if unknown, as when the bars are full and the function still runs."""
        estimate = self._estimate()
        return estimate if estimate and estimate < _LONGEST else None

    def _estimate(self) -> float | None:
        if not self._counted or self._counted[0].closed:
            return None
        outer, part = self._counted[0], self.fraction
        if len(self._counted) == 1 and outer.total and outer.rate and not outer.part:
            return max(0.0, (outer.total - outer.n) / outer.rate)
        # An inner bar may have moved long after the last report of the outer one.
        elapsed = outer.elapsed + max(bar.at for bar in self._counted) - outer.at
        made = (part or 0.0) - (outer.initial / outer.total if outer.total else 0.0)
        return elapsed * (1 - (part or 0.0)) / made if made > 0 else None

    @property
    def text(self) -> str:
        """`epoch 1/3 › batch 57/100 12.1 it/s`."""
        return self._joined(has_rate=True)

    @property
    def text_at_rest(self) -> str:
        """The same of a rank that waits: without the rate, which was that before."""
        return self._joined(has_rate=False)

    def _joined(self, *, has_rate: bool) -> str:
        if not self.bars:
            return ""
        inner = self.bars[-1]
        parts = (self.place, rate(inner.rate, inner.unit) if inner.rate and has_rate else "", inner.postfix)
        return " ".join(part for part in parts if part)

    @property
    def place(self) -> str:
        """`epoch 1/3 › batch 57/100`."""
        return " › ".join(_bar_text(bar) for bar in self.bars)


def progress(state: RankState) -> Progress:
    """The progress of a rank: its open bars, one for each depth, otherwise the last that was closed."""
    bars = list(state.bars.values())
    open_bars = [bar for bar in bars if not bar.closed]
    if not open_bars:
        outer = [bar for bar in bars if bar.counts == "epochs"] or [bar for bar in bars if not bar.depth] or bars
        return Progress(outer[-1:])
    by_depth = {bar.depth: bar for bar in open_bars}
    return Progress([by_depth[depth] for depth in sorted(by_depth)])


def fraction(state: RankState, found: Progress) -> float | None:
    """The fraction of a rank that is done: everything once it has returned, even if its bars have no totals."""
    if found.fraction is None and found.bars and state.phase is Phase.DONE:
        return 1.0
    return found.fraction


def waits(job: JobState) -> bool:
    """Whether a job is stalled or paused, so that no estimate and no rate holds."""
    return job.stalled is not None or job.is_paused


def rests(state: RankState, *, waits: bool) -> bool:
    """Whether a rank is at rest, paused or in a job that `waits`."""
    return (waits or state.phase is Phase.PAUSED) and not state.phase.ended


def bars_text(state: RankState, found: Progress, *, waits: bool) -> str:
    """The bars of a rank as text."""
    return found.text_at_rest if rests(state, waits=waits) else found.text


def activity(state: RankState, found: Progress, *, waits: bool) -> str:
    """What a rank does: its bars as text, unless it waits for the user."""
    return state.detail if state.detail == WAITS_FOR_INPUT else bars_text(state, found, waits=waits)


def amount(bar: Bar) -> str:
    """`57/100`, or only `57` without a total; of epochs, the current one."""
    n = min(bar.n + 1, bar.total or 0) if bar.counts == "epochs" and not bar.closed else bar.n
    words = f"{count(n)}/{count(bar.total)}" if bar.total else count(n)
    # The rate shows the unit too, as does a description that is the unit.
    return words if bar.unit in ("it", bar.description) or bar.rate else f"{words} {bar.unit.strip()}"


def _bar_text(bar: Bar) -> str:
    passes = f"pass {bar.passes + 1} › " if bar.passes else ""
    return f"{passes}{bar.description} {amount(bar)}".strip()


@dataclass(frozen=True)
class Overview:
    """The progress of a job."""

    fractions: dict[int, float]
    """By rank, where known; of a rank that makes an unknown number of passes, that of the current one."""
    positions: dict[int, float]
    """The same, with the passes before: what ranks are compared by."""
    is_whole: bool
    """Whether the fractions are those of all that the ranks do."""
    remaining: float | None
    """Seconds until the last rank is done."""
    blocking: frozenset[int] = frozenset()
    """In a stalled job, the ranks that others wait for."""
    waits: bool = False
    """As the function says."""

    @cached_property
    def done(self) -> float | None:
        """The fraction of the job that is done: that of the median rank; `None` if it is unknown."""
        return self._median if self.fractions and self.is_whole else None

    @cached_property
    def _median(self) -> float:
        ordered = sorted(self.positions.values())
        middle = len(ordered) // 2
        return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2

    @cached_property
    def slowest(self) -> int:
        return min(self.positions, key=lambda rank: (self.positions[rank], rank))

    def mark(self, state: RankState) -> str:
        """Why a rank stands out, in a word or three; empty if it does not."""
        if state.rank in self.blocking:
            return "blocking others"
        return "behind" if self.is_behind(state.rank) and not state.phase.ended else ""

    def is_behind(self, rank: int) -> bool:
        """Whether a rank is far behind the others."""
        return len(self.positions) > 1 and self.positions.get(rank, math.inf) < _BEHIND * self._median


def overview(job: JobState, progress_of: Callable[[RankState], Progress] = progress) -> Overview:
    """Merges the progress of all ranks."""
    fractions, positions, times, is_whole = {}, {}, [], True
    at_rest = waits(job)
    for state in job.ranks:
        found = progress_of(state)
        done = fraction(state, found)
        if done is not None:
            fractions[state.rank] = done
            positions[state.rank] = done + found.passes
        if not found.bars or state.phase.ended:
            continue
        is_whole = is_whole and found.is_whole
        if not at_rest and found.remaining is not None:
            times.append(found.remaining)
    remaining = max(times) if times and is_whole else None
    return Overview(fractions, positions, is_whole, remaining, _blocking(job), at_rest)


def _blocking(job: JobState) -> frozenset[int]:
    """The ranks of a stalled job that others wait for: those that don't wait themselves, if any other does."""
    places = [] if job.stalled is None else job.stalled.places
    others = frozenset(place.rank for place in places if place.phase is not Phase.WAITING)
    return others if len(others) < len(places) else frozenset()


class CachedProgress:
    """`progress` with a cache, for views that draw many ranks often, of which few have changed."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[list[Bar], Progress]] = {}

    def __call__(self, state: RankState) -> Progress:
        bars = list(state.bars.values())
        known = self._known.get(state.rank)
        if known is None or known[0] != bars:
            known = self._known[state.rank] = bars, progress(state)
        return known[1]


def failed_first(job: JobState) -> list[RankState]:
    """All ranks, those that failed before the others, the first failure first."""
    return failed(job) + [state for state in job.ranks if state.phase is not Phase.FAILED]


def failed(job: JobState) -> list[RankState]:
    """The ranks that failed, the first failure first."""
    return sorted((state for state in job.ranks if state.phase is Phase.FAILED), key=_failed_at)


def is_spread(job: JobState) -> bool:
    """Whether its ranks run on several nodes."""
    return len({state.host for state in job.ranks if state.host}) > 1


def by_host(job: JobState, states: Sequence[RankState]) -> list[tuple[str, list[RankState]]]:
    """The ranks in order, grouped by host; a single group with no host if all are on one node."""
    if not is_spread(job):
        return [("", list(states))] if states else []
    return [(host, list(each)) for host, each in groupby(states, key=lambda state: state.host)]


def _failed_at(state: RankState) -> float:
    return state.failed.at if state.failed else state.exited.at if state.exited else 0.0


def why_failed(state: RankState) -> str:
    """The last exception of a failed rank in one line, or how its process ended."""
    if state.phase is not Phase.FAILED:
        return ""
    if state.failed is not None and state.failed.from_peer:
        return LOST_CONNECTION
    if state.failed is not None and state.failed.chain:
        raised = state.failed.chain[-1]
        at = stack_frames.innermost_user_frame(raised.frames)
        words = next(iter(plain(raised.headline).splitlines()), raised.type_name)
        where = stack_frames.where(at) if at else ""
        # Only the kernel of a cell knows its number: elsewhere, its file has a random name.
        return f"{words} at {where}" if where and "/ipykernel_" not in where else words
    if state.exited is None:
        return ""
    if state.exited.lost:
        return f"lost with machine {state.exited.lost}"
    if state.exited.signal:
        return f"its process was killed by signal {state.exited.signal}"
    return f"its process ended with exit code {state.exited.code}"


def metric_names(job: JobState) -> list[str]:
    """The metrics of any rank, in the order in which they came."""
    return job.charts.names


def main_metric(names: Sequence[str]) -> str | None:
    """`loss`, or what ends with it such as `train/loss`; otherwise the metric that was reported first."""
    if _MAIN in names:
        return _MAIN
    return next((name for name in names if name.endswith(_MAIN)), next(iter(names), None))


def left_out(names: Sequence[str], shown: int) -> str:
    """The line about metrics beyond the first `shown`; empty if there are none."""
    count = len(names) - shown
    return f"and {count} more; job.metrics has them all" if count > 0 else ""


def metric(job: JobState, name: str, bins: int) -> Drawing:
    """A metric over the run, merged over ranks, in at most `bins` bins."""
    return job.charts.drawn(name, running(job), bins)


def running(job: JobState) -> Sequence[int]:
    """The ranks that still run, by index."""
    return () if job.status.ended else [index for index, state in enumerate(job.ranks) if not state.phase.ended]


def status(job: JobState) -> str:
    """The status of a job in a word, and while it runs, what is wrong or special."""
    if job.status.ended:
        return job.status.value
    if any(state.phase is Phase.FAILED for state in job.ranks):
        return "failing"
    if job.stopping:
        return "stopping"
    if job.awaits:
        return "waiting"
    if waits := "stalled" if job.stalled is not None else "paused" if job.is_paused else "":
        return waits
    return "saving" if any(state.is_saving for state in job.ranks) else job.status.value


def is_brief(job: JobState) -> bool:
    """Whether a single line is enough to show a job."""
    if job.seconds >= _BRIEF or job.stalled is not None or len(job.ranks) >= COMPACT_FROM:
        return False  # many ranks take longer than that to start
    if job.output_log.is_long:
        return False  # the panel has all lines
    return not any(state.bars or state.metrics for state in job.ranks)
