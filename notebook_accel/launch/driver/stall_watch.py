"""Decides whether a job has stalled, and reports which ranks wait for which.

A bar that moves, a metric, a line of output and a new phase all count as progress. A job without progress has not
necessarily stalled, since ranks may compute for hours. It has stalled when some ranks wait in collectives, and the
ranks that they may be waiting for make no progress or wait in collectives too, unless the user has paused it. A rank
that imports a module says so, and again as further modules have been imported, which is progress.
`StallWatch._has_stalled` is that rule.
"""

from __future__ import annotations

import time
from typing import Any

from notebook_accel.events import Bar, Event, Lines, Phase, PhaseChanged, Reports, Stalled
from notebook_accel.launch.job import collectives, location
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.location import StacksByRank
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.job.requests import Replies, RequestRanks, request_stacks

_LONGEST_IMPORT = 60.0
"""Seconds that a single file may take to be imported, such as a large library on a slow disk."""


class StallWatch:
    """Watches one attempt of a job, by its events and a timer."""

    def __init__(
        self,
        job: Job,
        stall_after: float | None,
        remote_ranks: int,
        request_ranks: RequestRanks,
        now: float,
    ) -> None:
        self._job = job
        self._stall_after = stall_after
        self._remote_ranks = remote_ranks
        self._request_ranks = request_ranks
        self._last_progress = [now] * len(job.ranks)
        self._reported: object = None
        """The stall as last reported: the phase of each rank and its detail; `None` if there is no stall."""

    def on_event(self, rank: int, event: Event, now: float) -> None:
        """Records progress. Call it before the job applies the event, because it compares a bar with its last state."""
        if _is_progress(event, self._job.ranks[rank]):
            self._last_progress[rank] = now

    def postpone(self, seconds: float) -> None:
        """Doesn't count `seconds` as time without progress."""
        self._last_progress = [at + seconds for at in self._last_progress]

    def check(self, now: float) -> None:
        """Reports to the job when it stalls, when the stall changes, and when it is over."""
        if self._stall_after is None:
            return
        stalled = [(state.phase, state.detail) for state in self._job.ranks] if self._has_stalled(now) else None
        if stalled == self._reported:
            return
        self._reported = stalled
        if stalled is None:
            self._job.apply(None, Stalled(()))
        else:
            since = time.time() - (now - max(self._last_progress[rank] for rank in self._without_progress(now)))
            found: dict[str, Any] = {}

            def add(name: str, replies: object) -> None:
                found[name] = replies
                if len(found) == len(("stacks", "collectives")):
                    self._report(stalled, found["stacks"], found["collectives"], since)

            request_stacks(self._request_ranks, lambda stacks: add("stacks", stacks))
            self._request_ranks(collectives.request(), lambda replies: add("collectives", replies))

    def _report(self, stalled: object, stacks: StacksByRank, recorded: Replies, since: float) -> None:
        if stalled is self._reported:  # nothing has changed since the stacks were requested
            locations = [location.of(state, stacks.get(rank, ())) for rank, state in enumerate(self._job.ranks)]
            mismatch = collectives.mismatch_of(self._job, recorded)
            self._job.apply(None, Stalled(locations, since, self._remote_ranks, mismatch))

    def _has_stalled(self, now: float) -> bool:
        if self._job.is_paused:
            return False
        idle = self._without_progress(now)
        waiting = [rank for rank in idle if self._job.ranks[rank].phase is Phase.WAITING]
        # The others may be waiting for a rank that makes progress, unless some rank is idle outside of any collective.
        return bool(waiting) and (len(idle) > len(waiting) or len(waiting) == self._count_running())

    def _count_running(self) -> int:
        return sum(not state.phase.ended for state in self._job.ranks)

    def _without_progress(self, now: float) -> list[int]:
        """The running ranks that have made no progress for `stall_after` seconds, or longer while they import."""
        assert self._stall_after is not None
        found, usual = [], self._stall_after
        for rank, at in enumerate(self._last_progress):
            state = self._job.ranks[rank]
            limit = max(usual, _LONGEST_IMPORT) if state.is_importing else usual
            if now - at >= limit and not state.phase.ended:
                found.append(rank)
        return found


def _is_progress(event: Event, state: RankState) -> bool:
    if isinstance(event, Bar):
        before = state.bars.get(event.bar)
        return before is None or _reading(before) != _reading(event)  # tqdm also redraws bars that have not moved
    if isinstance(event, PhaseChanged):
        return event.phase is not Phase.WAITING
    return isinstance(event, (Reports, Lines))


def _reading(bar: Bar) -> tuple[object, ...]:
    return bar.n, bar.total, bar.description, bar.postfix, bar.closed
