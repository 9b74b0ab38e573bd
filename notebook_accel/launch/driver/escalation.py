"""Stops the ranks of a call by escalation: SIGINT, then SIGTERM, then SIGKILL.

The steps and their times are a table in `stop_policy.py`; this module takes each when it is due.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence

from notebook_accel.events import Disconnect, Event, Phase, PhaseChanged, Preempt, Signalled
from notebook_accel.launch.driver.stop_policy import REQUESTED, Steps, StopAction, StopPolicy, StopReason
from notebook_accel.launch.engines.ranks import Ranks
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.show import console
from notebook_accel.rank_spans import spans

_NOTICE_AFTER = 1.0
"""Seconds after an interrupt until a notice says which ranks have not ended yet."""
_CLOSE_STORE_AFTER = 0.5
"""Seconds after the first of the stopped ranks has exited until the store is closed to the others."""
_TERMINATE_WAITING_AFTER = 1.5
"""Seconds after the same moment until ranks that still wait in a collective get SIGTERM."""


class Shutdown:
    """Stops the ranks of one call according to a policy.

    Args:
        ranks: The ranks.
        job: Records each signal that is sent.
        policy: Which steps are taken, and when.
        members: The ranks that run the call.
    """

    def __init__(self, ranks: Ranks, job: Job, policy: StopPolicy, members: Sequence[int]) -> None:
        self._ranks = ranks
        self._job = job
        self._policy = policy
        self._members = members
        self.reason: StopReason | None = None
        """Why the ranks are being stopped; `None` while they are not."""
        self.escalated = False
        """At least one step has been taken."""
        self.given_up = False
        """The last step was to stop waiting for the ranks."""
        self._began_at = 0.0
        self._steps: list[tuple[float, signal.Signals | StopAction]] = []
        self._deferred: set[int] = set()
        """Ranks that were starting or idle when the others were interrupted; they get the signal once they run."""
        self._first_exit: float | None = None
        """When the first rank was seen to have exited."""
        self._store_closed = False
        self._waiting_announced = False

    @property
    def is_requested(self) -> bool:
        """Whether the user requested the stop, as opposed to a failure or the timeout."""
        return self.reason in REQUESTED

    def begin(self, reason: StopReason, now: float) -> None:
        """Starts the escalation that belongs to the reason."""
        self.reason = reason
        self._restart(self._policy.steps[reason], now)

    def end_at_once(self, now: float) -> None:
        """Switches to the steps for a second request to stop, which take effect at once."""
        self._restart(self._policy.on_second_request, now)

    def skip_wait(self) -> None:
        """Makes the next step due now, since there is nothing left to wait for."""
        if self._steps:
            self._began_at -= self._steps[0][0]

    def next_step_at(self) -> float | None:
        """When the next step is due, on the monotonic clock; `None` without one."""
        return self._began_at + self._steps[0][0] if self._steps else None

    def on_event(self, rank: int, event: Event) -> None:
        """Sends a deferred interrupt to a rank whose phase shows that it is now running."""
        if isinstance(event, PhaseChanged) and rank in self._deferred:
            self._deferred.discard(rank)
            self._ranks.signal(rank, signal.SIGINT)

    def escalate(self, now: float) -> None:
        """Takes the steps that are due."""
        while self._steps and now >= self._began_at + self._steps[0][0]:
            self._perform(self._steps.pop(0)[1])
        if self.is_requested and self._policy.ranks_exit:
            self._release_waiting(now)
        if self.is_requested and self._steps and not self._waiting_announced and now > self._began_at + _NOTICE_AFTER:
            self._waiting_announced = True
            left = spans(state.rank for _, state in self._unfinished())
            console.current.notice(
                f"waiting up to {self._steps[0][0]:g} s for ranks {left} to end; "
                f"interrupt again to {self._policy.second_request_text}"
            )

    def _restart(self, steps: Steps, now: float) -> None:
        self._began_at = now
        self._steps = list(steps)

    def _unfinished(self) -> Iterator[tuple[int, RankState]]:
        """The members that have not exited."""
        return ((rank, self._job.ranks[rank]) for rank in self._members if not self._job.ranks[rank].exited)

    def _release_waiting(self, now: float) -> None:
        """Ends ranks that wait for one that has exited. They wait in C++, where no KeyboardInterrupt can be raised."""
        if self._first_exit is None and any(self._job.ranks[rank].exited for rank in self._members):
            self._first_exit = now
        if self._first_exit is None:
            return
        if not self._store_closed and now >= self._first_exit + _CLOSE_STORE_AFTER:
            self._store_closed = True
            self._ranks.close_store()
        if now >= self._first_exit + _TERMINATE_WAITING_AFTER:
            for rank, state in self._unfinished():
                if state.phase is Phase.WAITING and not state.stopped:
                    self._signal(rank, state, self._policy.last_resort)

    def _perform(self, step: signal.Signals | StopAction) -> None:
        self.escalated = True
        self.given_up = step is StopAction.GIVE_UP
        if step is StopAction.PREEMPT:
            self._ranks.send(range(self._ranks.size), Preempt(StopReason.PREEMPTION.value))
        if step is StopAction.DISCONNECT:
            self._ranks.send(range(self._ranks.size), Disconnect())
        if not isinstance(step, signal.Signals):
            return
        for rank, state in self._unfinished():
            if self._policy.ranks_exit:
                self._signal(rank, state, step)
            elif not state.answered:
                self._interrupt(rank, state, step)

    def _interrupt(self, rank: int, state: RankState, signum: signal.Signals) -> None:
        """Sends a signal that a persistent rank must survive."""
        self._job.apply(rank, Signalled(signum))
        if state.phase in (Phase.STARTING, Phase.IDLE):
            self._deferred.add(rank)  # no handler yet, or no cell to interrupt
        else:
            self._ranks.signal(rank, signum)

    def _signal(self, rank: int, state: RankState, signum: signal.Signals) -> None:
        if signum == signal.SIGINT and state.phase in (Phase.STARTING, Phase.IDLE):
            signum = signal.SIGKILL  # no user code runs in it yet, and its handler may not be installed
        self._job.apply(rank, Signalled(signum))
        self._ranks.signal(rank, signum)
