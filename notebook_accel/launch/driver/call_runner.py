"""One call on ranks: sends it to them, and dispatches their events until it is over on all of them.

This is the loop of the kernel's thread while a launch or a cell runs. It applies events to the job, shows output, and
checks the timers of the timeout, of stalls (`stall_watch.py`) and of the escalation of signals (`escalation.py`).
"""

from __future__ import annotations

import enum
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from notebook_accel.events import (
    Answer,
    Bar,
    CheckpointSaved,
    Cleared,
    CollectivesRecorded,
    Controlled,
    ControlsChanged,
    DebugReplied,
    Event,
    Exited,
    Failed,
    InputRequested,
    Lines,
    NameRequested,
    Phase,
    PhaseChanged,
    Profiled,
    Reports,
    Returned,
    Sampled,
    Seeded,
    Shown,
    Stacks,
    StepPromised,
    StopRequested,
    TrainingStarted,
    TunableChanged,
    Written,
)
from notebook_accel.launch.driver.debug_relay import DebugRelay
from notebook_accel.launch.driver.escalation import Shutdown
from notebook_accel.launch.driver.prompts import Prompts
from notebook_accel.launch.driver.rank_requests import AgreedSteps, RankRequests
from notebook_accel.launch.driver.rule_watch import RuleWatch
from notebook_accel.launch.driver.stall_watch import StallWatch
from notebook_accel.launch.driver.stop_policy import ONE_CALL, StopPolicy, StopReason, StopRequests
from notebook_accel.launch.engines.ranks import Life, Ranks
from notebook_accel.launch.job import location
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.location import StacksByRank
from notebook_accel.launch.job.rank_state import WAITS_FOR_INPUT, RankState
from notebook_accel.launch.job.requests import RankRequest, Replies, no_replies, request_stacks
from notebook_accel.launch.show import console
from notebook_accel.launch.show.output import Output
from notebook_accel.launch.wire import notebook_names
from notebook_accel.launch.wire.event_loop import Calls
from notebook_accel.launch.wire.payload import Payload

_TIMER_INTERVAL = 0.1
"""Seconds between two checks of the timers, at most."""
_RELEASE_AFTER = 0.3
"""Seconds from the beginning of a shutdown until ranks that are held in the debugger are let go."""
_REFRESH_INTERVAL = 0.02
"""Seconds between two refreshes of the output and the view."""


class Ending(enum.Enum):
    """How an attempt ended."""

    RETURNED = "returned"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    STOPPED = "stopped"


@dataclass
class AttemptOutcome:
    """The result of an attempt of a launch, or of one call on persistent ranks."""

    ending: Ending
    stacks_at_timeout: StacksByRank
    """The ranks' stacks when the timeout passed."""
    oom_killed: bool
    escalated: bool
    """Ranks were signalled, so a collective that they were in may have completed on some but not on others."""


class CallRunner:
    """Runs one call, on the thread that calls `run`.

    Args:
        ranks: The ranks, by their local number, as in the job.
        job: Takes the ranks' events.
        view: Is refreshed while the call runs.
        output: Shows what the ranks write.
        requests: Requests to stop the call.
        deadline: When the call times out, on the monotonic clock.
        stall_after: Seconds without progress after which the job reports what the ranks wait for.
        remote_ranks: The number of ranks that other kernels have started, on other nodes.
        policy: How the ranks are stopped, and whether they exit with the call.
        members: The ranks that run the call; by default all.
    """

    def __init__(
        self,
        ranks: Ranks,
        job: Job,
        view: console.View,
        output: Output,
        requests: StopRequests,
        *,
        deadline: float | None = None,
        stall_after: float | None = None,
        remote_ranks: int = 0,
        policy: StopPolicy = ONE_CALL,
        members: Sequence[int] | None = None,
    ) -> None:
        self._ranks = ranks
        self._members = range(len(job.ranks)) if members is None else members
        self._policy = policy
        self._job = job
        self._view = view
        self._output = output
        self._requests = requests
        self._deadline = deadline
        self._calls = Calls(ranks.loop)
        """What other threads and signal handlers have this thread do."""
        self._stop_requests = 0
        """How many requests to stop have been handled."""
        output.on_lines = self._on_lines
        self._stacks_at_timeout: StacksByRank = {}
        self._rank_requests = RankRequests(self._ranks, job)
        self._agreed_steps = AgreedSteps(self._rank_requests.request, job, remote_ranks)
        self._rules = RuleWatch(job, lambda: requests.submit(StopReason.CANCEL), self._agreed_steps.request)
        self._new_rank_requests: deque[tuple[RankRequest, Callable[[Replies], object]]] = deque()
        self._stall_watch = StallWatch(job, stall_after, remote_ranks, self._rank_requests.request, time.monotonic())
        self._next_stall_check = 0.0
        self._debug_relay = DebugRelay(ranks, self._calls, job, self._members)
        self._shutdown = Shutdown(ranks, job, policy, self._members)
        self._prompts = Prompts(ranks.loop, self._calls, requests, self._on_input, self._continue)
        self._namespace: Mapping[str, Any] | None = None
        """The names and values of the notebook, if it can be asked for them."""
        self._shown_at = 0.0
        self._checked_at = time.monotonic()
        """When the timers were last checked."""

    def run(self, payload: Payload) -> AttemptOutcome:
        """Calls the payload on every member; returns when the call is over on the last.

        Raises:
            LaunchError: The ranks could not be started.
        """
        self._namespace = payload.namespace
        self._requests.listen(lambda: self._calls.add(self._on_request))
        self._job.runner.request_ranks = self._request_ranks
        try:
            self._debug_relay.open()
            with self._ranks.calling(self._members, payload, self._on_event):
                while not self._is_finished():
                    self._ranks.loop.run_once(self._time_to_next_timer())
                    self._check_timers()
                    self._refresh()
                    self._prompts.open_next()
            for _, state in self._member_states():
                if not state.exited:
                    self._output.end(state.rank, time.monotonic())
            ending = self._ending()
            self._rules.close(is_complete=ending is Ending.RETURNED)
            if ending is Ending.RETURNED and self._policy.ranks_exit:
                self._ranks.expect_ends()
            oom_killed = ending is Ending.FAILED and self._ranks.oom_killed()
            return AttemptOutcome(ending, self._stacks_at_timeout, oom_killed, self._shutdown.escalated)
        finally:
            self._requests.listen(None)
            if self._shutdown.reason is not None:
                self._debug_relay.release()  # if the call was over before that was due
            self._debug_relay.close()
            self._prompts.close()
            self._calls.close()
            self._job.runner.request_ranks = no_replies
            while self._new_rank_requests:
                self._new_rank_requests.popleft()[1]({})
            self._agreed_steps.close()
            self._rank_requests.close()
            self._output.show(time.monotonic(), all_of_it=True)

    def _request_ranks(self, request: RankRequest, then: Callable[[Replies], object]) -> None:
        """The `Runner.request_ranks` of the job. Any thread may call it."""
        self._new_rank_requests.append((request, then))  # which has an answer also if the loop ends first
        self._calls.add(self._take_rank_requests)

    def _take_rank_requests(self) -> None:
        while self._new_rank_requests:
            self._rules.request(*self._new_rank_requests.popleft())

    def _continue(self) -> None:
        """Handles what has happened, and shows nothing: the terminal prompts the user."""
        self._ranks.loop.unthrottle()
        self._ranks.loop.run_once(0)
        self._check_timers()

    def _member_states(self) -> Iterator[tuple[int, RankState]]:
        """The members' states, by local number."""
        return ((rank, self._job.ranks[rank]) for rank in self._members)

    def _lives(self) -> Iterator[Life]:
        """Whether each member has answered, or has exited."""
        return (self._ranks.processes[rank].life for rank in self._members)

    def _is_finished(self) -> bool:
        if self._shutdown.given_up:
            return True
        if self._policy.ranks_exit:
            return all(life is Life.EXITED for life in self._lives())
        return Life.BUSY not in self._lives()

    def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._shown_at >= _REFRESH_INTERVAL:
            self._shown_at = now
            self._output.show(now)
            self._view.refresh()

    def _ending(self) -> Ending:
        if self._shutdown.is_requested:
            return Ending.STOPPED
        if self._shutdown.reason is StopReason.TIMEOUT:
            return Ending.TIMED_OUT
        returned = all(state.returned for _, state in self._member_states())
        return Ending.RETURNED if returned else Ending.FAILED

    # What the event loop calls

    def _on_event(self, rank: int, event: Event) -> None:
        if isinstance(event, (Bar, Reports)):
            self._apply(rank, event)
        elif isinstance(event, Written):
            self._output.feed(self._job.ranks[rank].rank, event.stream, b"".join(event.data), time.monotonic())
        elif isinstance(event, Exited):
            self._on_exit(rank, event)
        elif isinstance(event, DebugReplied):
            self._debug_relay.on_reply(rank, event)
        elif isinstance(event, (Stacks, Sampled, Profiled, CollectivesRecorded, StepPromised)):
            self._rank_requests.on_reply(rank, event, event.number)
        elif isinstance(event, Controlled):
            self._agreed_steps.on_report(event)
            self._rank_requests.on_reply(rank, event, event.number)
        elif isinstance(event, (ControlsChanged, TunableChanged)):
            self._agreed_steps.on_report(event)
        elif isinstance(event, (Shown, Cleared)):
            self._apply(rank, event)
            self._output.display(self._job.ranks[rank].rank, event, time.monotonic())
        elif isinstance(event, InputRequested):
            self._on_input_requested(rank, event)
        elif isinstance(event, NameRequested):
            self._ranks.send([rank], notebook_names.answer(event.name, self._namespace))
        elif isinstance(event, (TrainingStarted, CheckpointSaved)):
            self._job.apply(None, event)
        elif isinstance(event, Seeded):
            if self._job.seed is None:
                self._job.apply(None, event)
        else:
            self._apply(rank, location.with_location(event) if isinstance(event, PhaseChanged) else event)
            self._shutdown.on_event(rank, event)
            if isinstance(event, Failed):
                self._on_failure(StopReason.FAILURE)
            if isinstance(event, (Returned, Failed)):
                self._prompts.drop(rank)
                self._release_ranks()

    def _on_lines(self, rank: int, stream: str, lines: Sequence[str]) -> None:
        """Takes lines of a global rank."""
        self._apply(rank - self._job.launched.first, Lines(stream, lines, time.time()))

    def _on_exit(self, rank: int, exited: Exited) -> None:
        if rank in self._members:
            self._output.end(self._job.ranks[rank].rank, time.monotonic())
        self._job.apply(rank, exited)
        self._debug_relay.on_exit(rank)
        self._prompts.drop(rank)
        if not self._job.ranks[rank].answered:
            self._on_failure(StopReason.DEATH)
        self._release_ranks()

    def _on_input_requested(self, rank: int, event: InputRequested) -> None:
        """Prompts the user. A terminal then shows nothing else, so the view first says what the rank waits for."""
        self._apply(rank, PhaseChanged(Phase.RUNNING, WAITS_FOR_INPUT))
        self._apply(rank, event)
        self._output.show(time.monotonic(), all_of_it=True)
        self._view.refresh()
        self._prompts.add(rank, event)

    def _on_input(self, rank: int, answer: str | None) -> None:
        self._apply(rank, PhaseChanged(Phase.RUNNING))
        self._ranks.send([rank], Answer(answer))

    def _release_ranks(self) -> None:
        """Lets the ranks that have answered exit, all together, once all have answered or the shutdown has begun.

        Otherwise, a rank that returns right after the rendezvous would be gone before the others have connected to it.
        """
        if self._policy.ranks_exit and (self._shutdown.reason is not None or Life.BUSY not in self._lives()):
            answered = [rank for rank in self._members if self._ranks.processes[rank].life is Life.IDLE]
            if answered:
                self._ranks.finish(answered)

    def _apply(self, rank: int, event: Event) -> None:
        self._stall_watch.on_event(rank, event, time.monotonic())
        self._job.apply(rank, event)

    # Timers, and the end before all ranks have returned

    def _on_failure(self, how: StopReason) -> None:
        if self._shutdown.reason is None:
            self._begin_shutdown(how)

    def _on_request(self) -> None:
        reasons = self._requests.received
        if len(reasons) == self._stop_requests:
            return  # handled together with the one before
        self._stop_requests = len(reasons)
        self._job.apply(None, StopRequested(len(reasons)))
        if reasons[-1] is not StopReason.PREEMPTION:
            self._prompts.refuse()  # first, since a rank that is a thread is interrupted only once it no longer waits
        if self._shutdown.reason is None:  # otherwise, what has ended the call first stays the cause
            self._begin_shutdown(reasons[0])
        if len(reasons) > 1:
            self._shutdown.end_at_once(time.monotonic())

    def _begin_shutdown(self, reason: StopReason) -> None:
        self._shutdown.begin(reason, time.monotonic())
        # Later, so that an interrupt reaches ranks where they are held.
        self._ranks.loop.call_later(_RELEASE_AFTER, self._debug_relay.release)
        self._release_ranks()

    def _time_to_next_timer(self) -> float:
        """Seconds until a timer is due, even if no rank sends anything."""
        now = time.monotonic()
        times = [now + _TIMER_INTERVAL]
        if (due := self._shutdown.next_step_at()) is not None:
            times.append(due)
        if (due := self._output.next_due) is not None:
            times.append(max(due, self._shown_at + _REFRESH_INTERVAL))
        if self._deadline is not None and self._shutdown.reason is None:
            times.append(self._deadline)
        return max(0.0, min(times) - now)

    def _check_timers(self) -> None:
        now = time.monotonic()
        self._rules.poll(now)
        self._agreed_steps.poll()
        self._rank_requests.poll(now)
        self._postpone(self._debug_relay.held_seconds(now) + self._prompts.held_seconds(now))
        if self._shutdown.reason is None and now >= self._next_stall_check:
            self._next_stall_check = now + _TIMER_INTERVAL
            self._stall_watch.check(now)
        if self._deadline is not None and self._job.is_paused:
            self._deadline += now - self._checked_at
        self._checked_at = now
        if self._deadline is not None and self._shutdown.reason is None and now >= self._deadline:
            self._begin_shutdown(StopReason.TIMEOUT)
            request_stacks(self._rank_requests.request, self._on_timeout_stacks)
        self._shutdown.escalate(now)

    def _postpone(self, seconds: float) -> None:
        """Doesn't count time for which the user holds ranks in the debugger, or is prompted."""
        if seconds:
            self._stall_watch.postpone(seconds)
            if self._deadline is not None:
                self._deadline += seconds

    def _on_timeout_stacks(self, stacks: StacksByRank) -> None:
        """Keeps the stacks for the timeout error, and lets the escalation continue."""
        self._stacks_at_timeout = stacks
        self._shutdown.skip_wait()
