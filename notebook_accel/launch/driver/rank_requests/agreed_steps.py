"""Finds the step after which all ranks do what a user wants, and commands it; see `events/control.py`.

The driver finds it, rather than the ranks among themselves, so that a step costs them nothing until then: no
collective, no look at a store, no thread. One command after the other, so that ranks get them in the same order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from notebook_accel.events import (
    Control,
    Controlled,
    ControlsChanged,
    Phase,
    ProfileRequested,
    StepPromised,
    StepRequested,
    TunableChanged,
)
from notebook_accel.events.control import PROFILE, RESUME, WITHDRAW
from notebook_accel.launch.driver.rank_requests.reachable_ranks import reachable
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.requests import RankRequest, Replies, RequestRanks

_PROMISE_SECONDS = 5.0
"""Seconds for a promise, which each rank gives at once unless C code holds its GIL."""
_COMMAND_SECONDS = 5.0
"""The same for a command that needs no step."""
_SILENT = f"it has not answered within {_PROMISE_SECONDS:g} s: C code may hold its GIL"


class AgreedSteps:
    """Passes requests on to the ranks of one attempt; what has to happen at one step, in the two messages it takes.

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
