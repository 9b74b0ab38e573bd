"""What the driver requests of the ranks of an attempt while they run: stacks, other reports, and agreed steps."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from notebook_accel.events import (
    Control,
    Controlled,
    ControlsChanged,
    Event,
    Phase,
    ProfileRequested,
    Stacks,
    StacksRequested,
    StepPromised,
    StepRequested,
    ThreadStack,
    TunableChanged,
)
from notebook_accel.events.control import PROFILE, RESUME, WITHDRAW
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.requests import RankRequest, Replies, RequestRanks
from notebook_accel.launch.job.stacks import StacksByRank

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


class Reachable(Protocol):
    """Ranks that take requests, such as those of an engine."""

    def send(self, ranks: Collection[int], event: Event) -> None:
        """Sends an event to ranks."""

    def dump_stacks(self, ranks: Collection[int], number: int) -> None:
        """Makes ranks write their stacks by a signal, if they can. The replies are `Stacks` with this number."""


def reachable(job: Job) -> list[int]:
    """The ranks that have started, and have neither exited nor answered."""
    states = enumerate(job.ranks)
    return [rank for rank, state in states if state.pid is not None and not (state.exited or state.answered)]


class StackRequests:
    """Requests the Python stacks of the ranks of one attempt, for `job.stacks()`, a stall, or a timeout error.

    A rank normally replies with its stacks itself. A rank that can't, because C code holds the GIL, is sent a signal
    that makes faulthandler write them, which does not need the GIL. Only `request` may be called by other threads.
    """

    def __init__(self, ranks: Reachable, job: Job) -> None:
        self._ranks = ranks
        self._job = job
        self._pending: deque[Callable[[StacksByRank], object]] = deque()
        self._request: _ActiveStacks | None = None
        self._request_number = 0

    def request(self, callback: Callable[[StacksByRank], object]) -> None:
        """Calls `callback` with the stacks, on the thread of the event loop. Any thread may request them."""
        self._pending.append(callback)

    def poll(self, now: float) -> None:
        """Sends the next request, or collects the replies to the current one. Called several times a second."""
        if self._request is None and self._pending:
            self._send(now)
        if self._request is not None:
            self._collect(self._request, now)

    def on_reply(self, rank: int, reply: Stacks) -> None:
        """Records a reply, unless it is to a request that is over."""
        if self._request is not None and reply.number == self._request_number:
            self._request.stacks_by_rank.setdefault(rank, reply.threads)

    def close(self) -> None:
        """Calls the waiting callbacks with the stacks collected so far."""
        if self._request is not None:
            self._finish(self._request)
        while self._pending:
            self._pending.popleft()({})

    def _send(self, now: float) -> None:
        self._request_number += 1
        self._request = _ActiveStacks(now, list(self._pending))
        self._pending.clear()
        self._ranks.send(reachable(self._job), StacksRequested(self._request_number))

    def _collect(self, request: _ActiveStacks, now: float) -> None:
        late = [rank for rank in reachable(self._job) if rank not in request.stacks_by_rank]
        if not late or now - request.sent_at > _STACKS_TIMEOUT:
            self._finish(request)
        elif now - request.sent_at >= _SIGNAL_AFTER and not request.signalled:
            request.signalled = True
            self._ranks.dump_stacks(late, self._request_number)

    def _finish(self, request: _ActiveStacks) -> None:
        self._request = None
        for callback in request.callbacks:
            callback(request.stacks_by_rank)


@dataclass
class _ActiveStacks:
    sent_at: float
    callbacks: list[Callable[[StacksByRank], object]]
    stacks_by_rank: dict[int, Sequence[ThreadStack]] = field(default_factory=dict)
    signalled: bool = False
    """Ranks that had not replied got the signal."""


class RankRequests:
    """Sends any other requests to the ranks of one attempt, several at a time. Any thread may call `request`."""

    def __init__(self, ranks: Reachable, job: Job) -> None:
        self._ranks = ranks
        self._job = job
        self._new: deque[tuple[RankRequest, Callable[[Replies], object], float]] = deque()
        self._active: dict[int, _Active] = {}
        self._last_number = 0

    def request(self, request: RankRequest, callback: Callable[[Replies], object]) -> None:
        """Calls `callback` with the replies, on the thread of the event loop. Any thread may request them."""
        self._new.append((request, callback, time.monotonic() + _START_TIMEOUT))

    def poll(self, now: float) -> None:
        """Sends new requests, and ends those that have all replies or wait too long. Called several times a second."""
        while self._new and (self._have_started() or now >= self._new[0][2]):
            request, callback, _ = self._new.popleft()
            self._send(request, callback, now)
        running = set(reachable(self._job))
        for number, active in list(self._active.items()):
            if now >= active.deadline or not running.intersection(active.ranks) - active.replies.keys():
                self._finish(number)

    def on_reply(self, rank: int, reply: Event, number: int) -> None:
        """Records a reply to the request of this number, unless that is over."""
        if number in self._active:
            self._active[number].replies[rank] = reply

    def close(self) -> None:
        """Calls the waiting callbacks with what has come so far."""
        for number in list(self._active):
            self._finish(number)
        while self._new:
            self._new.popleft()[1]({})

    def _have_started(self) -> bool:
        return all(state.pid is not None or state.exited for state in self._job.ranks)

    def _send(self, request: RankRequest, callback: Callable[[Replies], object], now: float) -> None:
        ranks = [rank for rank in reachable(self._job) if request.member in (None, rank)]
        self._last_number += 1
        self._active[self._last_number] = _Active(callback, ranks, now + request.seconds + _REPLY_TIMEOUT)
        event: Any = request.event
        self._ranks.send(ranks, replace(event, number=self._last_number))

    def _finish(self, number: int) -> None:
        active = self._active.pop(number)
        active.callback(active.replies)


@dataclass
class _Active:
    callback: Callable[[Replies], object]
    ranks: list[int]
    deadline: float
    replies: dict[int, Event] = field(default_factory=dict)


class AgreedSteps:
    """Passes requests on to the ranks of one attempt; what has to happen at one step, in the two messages it takes.

    The driver finds the step, rather than the ranks among themselves, so that a step costs them nothing until then: no
    collective, no look at a store, no thread. One command after the other, so that ranks get them in the same order;
    see `events/control.py`.

    That is a `Control`, and a profile of several ranks. Where no step can be agreed on, as in a loop without an
    `Accelerator`, a `Control` fails, and each rank profiles from the step on that it is in.

    Args:
        request_ranks: Asks the ranks, and calls back on the thread of the event loop.
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
        """Asks the ranks, and calls back with their replies. Any thread may call it."""
        if isinstance(request.event, Control) or self._is_shared_profile(request):
            self._waiting.append((request, then))
        else:
            self._request_ranks(request, then)

    def _is_shared_profile(self, request: RankRequest) -> bool:
        ranks = len(self._job.ranks) if request.member is None else 1
        return isinstance(request.event, ProfileRequested) and ranks > 1 and not self._elsewhere

    def poll(self) -> None:
        """Begins with the next command. Called several times a second, on the thread of the event loop."""
        if any(state.phase is Phase.IDLE for state in self._job.ranks):
            return  # its call is about to begin
        while self._waiting and not self._is_busy:
            self._begin(*self._waiting.popleft())

    def on_report(self, report: Controlled | ControlsChanged | TunableChanged) -> None:
        """Records for the job what its ranks report, the first that does."""
        if isinstance(report, Controlled):
            if report.error or report.action == WITHDRAW or report.number in self._recorded:
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
