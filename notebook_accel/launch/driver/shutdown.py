"""Makes ranks end before their time, step by step."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence

from notebook_accel.events import Event, Phase, PhaseChanged, Signalled
from notebook_accel.launch.driver.group import RankGroup
from notebook_accel.launch.driver.stopping import GRACE, Act, Life, Reason, Steps
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.job.text import spans
from notebook_accel.launch.show import front_end

_PATIENCE = 1.0
"""Seconds after an interrupt before saying what is being waited for."""
_STORE_CLOSES_AFTER = 0.5
"""Seconds after the end of a rank that was stopped until its store is closed to the others."""
_ABANDONED = 1.5
"""The same, until those end that still wait for it."""


class Shutdown:
    """Ends the ranks of one call, by what the call means to them.

    Args:
        group: The ranks.
        job: Is told of each signal.
        life: Which steps are taken, and when.
        members: The ranks that run the call.
    """

    def __init__(self, group: RankGroup, job: Job, life: Life, members: Sequence[int]) -> None:
        self._group = group
        self._job = job
        self._life = life
        self._members = members
        self.reason: Reason | None = None
        """Why they are made to end; `None` while they are not."""
        self.disturbed = False
        """A step has been taken."""
        self.given_up = False
        """They are waited for no longer."""
        self._began = 0.0
        self._steps: list[tuple[float, signal.Signals | Act]] = []
        self._missed: set[int] = set()
        """Ranks that could not hear an interrupt yet."""
        self._first_end: float | None = None
        """When the first rank was seen to have ended."""
        self._store_closed = False
        self._waiting_announced = False

    @property
    def is_requested(self) -> bool:
        """Whether somebody wants them to end, rather than their own failure or the clock."""
        return self.reason in (Reason.INTERRUPT, Reason.CANCEL)

    def begin(self, reason: Reason, now: float) -> None:
        """Starts on the steps that the reason asks for."""
        self.reason = reason
        self._restart(self._life.steps[reason], now)

    def end_at_once(self, now: float) -> None:
        """Leaves out all steps but the last."""
        self._restart(self._life.at_once, now)

    def skip_wait(self) -> None:
        """Takes the next step now: there is nothing more to wait for."""
        if self._steps:
            self._began -= self._steps[0][0]

    def due(self) -> float | None:
        """When the next step is to be taken."""
        return self._began + self._steps[0][0] if self._steps else None

    def heard(self, rank: int, event: Event) -> None:
        """A rank that could not hear an interrupt yet gets it now."""
        if isinstance(event, PhaseChanged) and rank in self._missed:
            self._missed.discard(rank)
            self._group.ranks.signal(rank, signal.SIGINT)

    def escalate(self, now: float) -> None:
        """Takes the steps that are due."""
        while self._steps and now >= self._began + self._steps[0][0]:
            self._take(self._steps.pop(0)[1])
        if self.is_requested and self._life.ends:
            self._free_waiting(now)
        if self.is_requested and self._steps and not self._waiting_announced and now > self._began + _PATIENCE:
            self._waiting_announced = True
            left = spans(state.rank for _, state in self._left())
            front_end.current.notice(
                f"waiting up to {GRACE:g} s for ranks {left} to end; interrupt again to {self._life.again}"
            )

    def _restart(self, steps: Steps, now: float) -> None:
        self._began = now
        self._steps = list(steps)

    def _left(self) -> Iterator[tuple[int, RankState]]:
        """The members that have not ended."""
        return ((rank, self._job.ranks[rank]) for rank in self._members if not self._job.ranks[rank].exited)

    def _free_waiting(self, now: float) -> None:
        """Frees ranks that wait for one that has ended: they do so in C++, where no interrupt reaches them."""
        if self._first_end is None and any(self._job.ranks[rank].exited for rank in self._members):
            self._first_end = now
        if self._first_end is None:
            return
        if not self._store_closed and now >= self._first_end + _STORE_CLOSES_AFTER:
            self._store_closed = True
            self._group.ranks.close_store()
        if now >= self._first_end + _ABANDONED:
            for rank, state in self._left():
                if state.phase is Phase.WAITING and not state.stopped:
                    self._signal(rank, state, signal.SIGTERM)

    def _take(self, step: signal.Signals | Act) -> None:
        self.disturbed = True
        self.given_up = step is Act.GIVE_UP
        if step is Act.DISCONNECT:
            self._group.disconnect()
        if not isinstance(step, signal.Signals):
            return
        for rank, state in self._left():
            if self._life.ends:
                self._signal(rank, state, step)
            elif not state.answered:
                self._interrupt(rank, state, step)

    def _interrupt(self, rank: int, state: RankState, signum: signal.Signals) -> None:
        """Sends a signal to a rank that is to outlive it."""
        self._job.apply(rank, Signalled(signum))
        if state.phase in (Phase.STARTING, Phase.IDLE):
            self._missed.add(rank)  # it could not hear it yet
        else:
            self._group.ranks.signal(rank, signum)

    def _signal(self, rank: int, state: RankState, signum: signal.Signals) -> None:
        if signum == signal.SIGINT and state.phase in (Phase.STARTING, Phase.IDLE):
            signum = signal.SIGKILL  # nothing of the user's runs in it yet, and it could miss the interrupt
        self._job.apply(rank, Signalled(signum))
        self._group.ranks.signal(rank, signum)
