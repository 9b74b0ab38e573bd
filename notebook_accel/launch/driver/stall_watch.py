"""Notices that a job makes no progress while ranks wait for others, and says who waits for whom.

A bar that moves, a metric, a line and a new phase are progress. That no rank makes any is not enough: ranks may compute
for hours. A job has stalled when some sit in collectives, and those that they may wait for stand still, or sit in some
too.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from notebook_accel.events import Bar, Event, Line, Metrics, Phase, PhaseChanged, Stalled
from notebook_accel.launch.job import location
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.job.stacks import StacksByRank


class StallWatch:
    """Watches one attempt of a job."""

    def __init__(
        self,
        job: Job,
        after: float | None,
        elsewhere: int,
        ask: Callable[[Callable[[StacksByRank], object]], object],
        now: float,
    ) -> None:
        self._job = job
        self._after = after
        self._elsewhere = elsewhere
        self._ask = ask
        """Calls back with the stacks of the ranks."""
        self._moved = [now] * len(job.ranks)
        self._found: object = None
        """What has stalled, as it was last found: the phase of each rank, and what it does in it."""

    def hear(self, rank: int, event: Event, now: float) -> None:
        """Takes note of what a rank says, before the job does."""
        if _is_progress(event, self._job.ranks[rank]):
            self._moved[rank] = now

    def look(self, now: float) -> None:
        """Tells the job when it stalls, when something about that changes, and when it goes on."""
        if self._after is None:
            return
        found = [(state.phase, state.detail) for state in self._job.ranks] if self._has_stalled(now) else None
        if found == self._found:
            return
        self._found = found
        if found is None:
            self._job.apply(None, Stalled(()))
        else:
            since = time.time() - (now - max(self._moved[rank] for rank in self._standing(now)))
            self._ask(lambda told: self._tell(found, told, since))

    def _tell(self, found: object, told: StacksByRank, since: float) -> None:
        if found is self._found:  # it still is as it was when this was asked
            where = [location.of(state, told.get(rank, ())) for rank, state in enumerate(self._job.ranks)]
            self._job.apply(None, Stalled(where, since, self._elsewhere))

    def _has_stalled(self, now: float) -> bool:
        standing = self._standing(now)
        waiting = [rank for rank in standing if self._job.ranks[rank].phase is Phase.WAITING]
        # Whoever moves may be who they wait for, unless one stands still that waits for nobody.
        return bool(waiting) and (len(standing) > len(waiting) or len(waiting) == self._alive())

    def _alive(self) -> int:
        return sum(not state.phase.ended for state in self._job.ranks)

    def _standing(self, now: float) -> list[int]:
        """The ranks that are not at their end, and have made no progress for long."""
        assert self._after is not None
        latest = now - self._after
        ranks = self._job.ranks
        return [rank for rank, at in enumerate(self._moved) if at <= latest and not ranks[rank].phase.ended]


def _is_progress(event: Event, state: RankState) -> bool:
    if isinstance(event, Bar):
        before = state.bars.get(event.bar)
        return before is None or _reading(before) != _reading(event)  # tqdm draws one that stands still too
    if isinstance(event, PhaseChanged):
        return event.phase is not Phase.WAITING
    return isinstance(event, (Metrics, Line))


def _reading(bar: Bar) -> tuple[object, ...]:
    return bar.n, bar.total, bar.description, bar.postfix, bar.closed
