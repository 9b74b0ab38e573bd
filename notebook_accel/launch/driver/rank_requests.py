"""What the driver requests of the ranks of an attempt while they run: stacks, other reports, and agreed steps."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from notebook_accel.events import (
    Control,
    Controlled,
    ControlsChanged,
    Event,
    Phase,
    ProfileRequested,
    StacksRequested,
    StepPromised,
    StepRequested,
    TunableChanged,
)
from notebook_accel.events.control import PROFILE, RESUME, WITHDRAW
from notebook_accel.launch.engines.ranks import Ranks
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.requests import RankRequest, Replies, RequestRanks

_SIGNAL_AFTER = 1.0
"""Seconds without a reply after which a rank gets the signal. Any rank that can run Python replies sooner."""
_STACKS_TIMEOUT = 2.0
"""Seconds after which the callbacks get the stacks collected so far."""
_START_TIMEOUT = 20.0
"""Seconds for which a request waits for ranks that have not started; then those that have get it."""
_REPLY_TIMEOUT = 3.0
"""Seconds after the time that a reply may take after which the callback gets what has come so far."""
_PROMISE_SECONDS = 5.0
"""Seconds for a promise, which each rank gives at once unless C code holds its GIL."""
_COMMAND_SECONDS = 5.0
"""The same for a command that needs no step."""
_SILENT = f"it has not answered within {_PROMISE_SECONDS:g} s: C code may hold its GIL"


Callback = Callable[[Replies], object]
"""Takes the replies to a request."""


def reachable(job: Job) -> list[int]:
    """The ranks that reply, by index."""
    return [rank for rank, state in enumerate(job.ranks) if state.is_reachable]


class RankRequests:
    """Sends requests to the ranks of one attempt, several at a time.

    A rank normally replies with its stacks itself. A rank that can't, because C code holds the GIL, is sent a signal
    that makes faulthandler write them, which does not need the GIL. So requests for stacks are sent one at a time, each
    for all who wait for them, and don't wait for ranks that have not started.
    """

    def __init__(self, ranks: Ranks, job: Job) -> None:
        self._ranks = ranks
        self._job = job
        self._new: deque[tuple[RankRequest, Callback, float]] = deque()
        self._new_stacks: deque[Callback] = deque()
        self._active: dict[int, _Active] = {}
        self._last_number = 0

    def request(self, request: RankRequest, callback: Callback) -> None:
        """Calls `callback` with the replies."""
        if isinstance(request.event, StacksRequested):
            self._new_stacks.append(callback)
        else:
            self._new.append((request, callback, time.monotonic() + _START_TIMEOUT))

    def poll(self, now: float) -> None:
        """Sends new requests, and ends those that have all replies or wait too long. Called several times a second."""
        if self._new_stacks and not any(active.signal_at for active in self._active.values()):
            callbacks = [self._new_stacks.popleft() for _ in range(len(self._new_stacks))]
            active = self._send(RankRequest(StacksRequested(0)), callbacks, now + _STACKS_TIMEOUT)
            active.signal_at = now + _SIGNAL_AFTER
        while self._new and (self._have_started() or now >= self._new[0][2]):
            request, callback, _ = self._new.popleft()
            self._send(request, [callback], now + request.seconds + _REPLY_TIMEOUT)
        running = set(reachable(self._job))
        for number, active in list(self._active.items()):
            late = running.intersection(active.ranks) - active.replies.keys()
            if now >= active.deadline or not late:
                self._finish(number)
            elif active.signal_at is not None and now >= active.signal_at:
                active.signal_at = math.inf
                self._ranks.dump_stacks(sorted(late), number)

    def on_reply(self, rank: int, reply: Event, number: int) -> None:
        """Records the first reply of a rank to the request of this number, unless that is over."""
        if number in self._active:
            self._active[number].replies.setdefault(rank, reply)

    def close(self) -> None:
        """Calls the waiting callbacks with what has come so far."""
        for number in list(self._active):
            self._finish(number)
        while self._new_stacks:
            self._new_stacks.popleft()({})
        while self._new:
            self._new.popleft()[1]({})

    def _have_started(self) -> bool:
        return all(state.pid is not None or state.exited for state in self._job.ranks)

    def _send(self, request: RankRequest, callbacks: Sequence[Callback], deadline: float) -> _Active:
        ranks = [rank for rank in reachable(self._job) if request.member in (None, rank)]
        self._last_number += 1
        active = self._active[self._last_number] = _Active(callbacks, ranks, deadline)
        event: Any = request.event
        self._ranks.send(ranks, replace(event, number=self._last_number))
        return active

    def _finish(self, number: int) -> None:
        active = self._active.pop(number)
        for callback in active.callbacks:
            callback(active.replies)


@dataclass
class _Active:
    callbacks: Sequence[Callback]
    ranks: list[int]
    deadline: float
    replies: dict[int, Event] = field(default_factory=dict)
    signal_at: float | None = None
    """When ranks that have not replied get the signal, for a request for stacks; infinity once they have got it."""


class AgreedSteps:
    """Passes requests on to the ranks of one attempt; what has to happen at one step, in the two messages it takes.

    The driver finds the step, rather than the ranks among themselves, so that a step costs them nothing until then: no
    collective, no look at a store, no thread. One command after the other, so that ranks get them in the same order;
    see `events/control.py`.

    That is a `Control`, and a profile of several ranks. Where no step can be agreed on, as in a loop without an
    `Accelerator`, a `Control` fails, and each rank profiles from the step on that it is in.

    Args:
        request_ranks: Asks the ranks, and calls back with their replies.
        job: Their job.
        elsewhere: The number of ranks that other launches have started, and that can't be asked.
    """

    def __init__(self, request_ranks: RequestRanks, job: Job, elsewhere: int) -> None:
        self._request_ranks = request_ranks
        self._job = job
        self._elsewhere = elsewhere
        self._waiting: deque[tuple[RankRequest, Callable[[Replies], object]]] = deque()
        self._is_busy = False
        self._recorded: set[int] = set()
        """The numbers of the commands that the job knows to be done."""

    def request(self, request: RankRequest, then: Callable[[Replies], object]) -> None:
        """Asks the ranks, and calls back with their replies."""
        if isinstance(request.event, Control) or self._is_shared_profile(request):
            self._waiting.append((request, then))
        else:
            self._request_ranks(request, then)

    def _is_shared_profile(self, request: RankRequest) -> bool:
        ranks = len(self._job.ranks) if request.member is None else 1
        return isinstance(request.event, ProfileRequested) and ranks > 1 and not self._elsewhere

    def poll(self) -> None:
        """Begins with the next command. Called several times a second."""
        if any(state.phase is Phase.IDLE and state.pid is not None for state in self._job.ranks):
            return  # its call is about to begin; one that takes no part in the call has no process in the job
        while self._waiting and not self._is_busy:
            self._begin(*self._waiting.popleft())

    def on_report(self, report: Controlled | ControlsChanged | TunableChanged) -> None:
        """Records for the job what its ranks report, the first that does."""
        if isinstance(report, Controlled):
            is_done = report.step >= 0 and not report.error  # a rank that runs nothing doesn't take part
            if not is_done or report.action == WITHDRAW or report.number in self._recorded:
                return
            self._recorded.add(report.number)
        elif report in (self._job.controls, *self._job.tunables.values()):
            return
        self._job.apply(None, report)

    def close(self) -> None:
        """Calls the waiting callbacks without replies."""
        while self._waiting:
            self._waiting.popleft()[1]({})

    def _begin(self, request: RankRequest, then: Callable[[Replies], object]) -> None:
        event = request.event
        if isinstance(event, ProfileRequested):
            self._request_step(StepRequested(0, PROFILE), request, then)
            return
        assert isinstance(event, Control)
        if self._elsewhere:
            error = f"{self._elsewhere} of its ranks were launched by other notebooks, which don't receive the request"
            then({0: Controlled(0, event.action, error=error)})
        elif event.action == RESUME:
            self._request_ranks(replace(request, seconds=_COMMAND_SECONDS), then)
        else:
            self._request_step(StepRequested(0, event.action, event.values), request, then)

    def _request_step(self, wanted: StepRequested, request: RankRequest, then: Callable[[Replies], object]) -> None:
        self._is_busy = True
        self._request_ranks(
            RankRequest(wanted, _PROMISE_SECONDS), lambda replies: self._on_promises(request, then, replies)
        )

    def _on_promises(self, request: RankRequest, then: Callable[[Replies], object], replies: Replies) -> None:
        self._is_busy = False
        promises = {rank: event for rank, event in replies.items() if isinstance(event, StepPromised)}
        steps = [promise.step for promise in promises.values() if promise.step >= 0]
        refusals = {rank: promise.error for rank, promise in promises.items() if promise.error}
        refusals |= {rank: _SILENT for rank in reachable(self._job) if rank not in promises}
        event = request.event
        assert isinstance(event, (Control, ProfileRequested))
        if steps and not refusals:
            self._request_ranks(replace(request, event=replace(event, step=max(steps))), then)
            return
        if steps:
            self._request_ranks(RankRequest(Control(0, WITHDRAW), _COMMAND_SECONDS), lambda _: None)
        if isinstance(event, Control):
            then({rank: Controlled(0, event.action, error=error) for rank, error in refusals.items()})
        else:
            self._request_ranks(request, then)
