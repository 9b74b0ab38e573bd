"""One call on a group of ranks: sends it to them, and dispatches their events until it is over on all of them.

This is the loop of the kernel's thread while a launch or a cell runs. It applies events to the job, shows output, and
checks the timers of the timeout, of stalls (`stall_watch.py`) and of the escalation of signals (`escalation.py`).
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from notebook_accel.errors import StreamError
from notebook_accel.events import (
    Bar,
    Event,
    Exited,
    Failed,
    InputRequested,
    Metrics,
    PhaseChanged,
    Returned,
    Shown,
    Stacks,
    StopRequested,
    from_wire,
)
from notebook_accel.launch.driver.attempt_outcome import AttemptOutcome, Ending
from notebook_accel.launch.driver.escalation import Shutdown
from notebook_accel.launch.driver.event_loop import EventLoop
from notebook_accel.launch.driver.group import RankGroup
from notebook_accel.launch.driver.pipes import Pipes
from notebook_accel.launch.driver.request_stacks import StackRequests
from notebook_accel.launch.driver.stall_watch import StallWatch
from notebook_accel.launch.driver.stop_policy import ONE_CALL, StopPolicy, StopReason, StopRequests, raise_on_sigint
from notebook_accel.launch.job.job import Job, no_stacks
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.job.stacks import StacksByRank
from notebook_accel.launch.show import front_end
from notebook_accel.launch.show.output import Output
from notebook_accel.launch.wire import stack_frames
from notebook_accel.launch.wire.payload import Payload
from notebook_accel.launch.wire.stream import Message

_TIMER_INTERVAL = 0.1
"""Seconds between two checks of the timers, at most."""
_REFRESH_INTERVAL = 0.02
"""Seconds between two refreshes of the output and the view."""


class CallRunner:
    """Runs one call, on the thread that calls `run`.

    Args:
        group: The ranks, by their local number, as in the job.
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
        group: RankGroup,
        job: Job,
        view: front_end.View,
        output: Output,
        requests: StopRequests,
        *,
        deadline: float | None = None,
        stall_after: float | None = None,
        remote_ranks: int = 0,
        policy: StopPolicy = ONE_CALL,
        members: Sequence[int] | None = None,
    ) -> None:
        self._group = group
        self._ranks = group.ranks
        self._members = range(len(job.ranks)) if members is None else members
        self._policy = policy
        self._job = job
        self._view = view
        self._output = output
        self._requests = requests
        self._deadline = deadline
        self._event_loop = EventLoop()
        self._pipes = Pipes(group, job, output, self._event_loop, self._apply)
        self._stacks_at_timeout: StacksByRank = {}
        self._stack_requests = StackRequests(self._ranks, job, group.stacks)
        self._stall_watch = StallWatch(job, stall_after, remote_ranks, self._stack_requests.request, time.monotonic())
        self._next_stall_check = 0.0
        self._shutdown = Shutdown(group, job, policy, self._members)
        self._unanswered = set(self._members)
        """Members that have neither answered nor exited."""
        self._unfinished = set(self._members)
        """Members on which the call is not over."""
        self._answered: list[int] = []
        """Members that have answered, and may not exit yet; see `_release_ranks`."""
        self._shown_at = 0.0

    def run(self, payload: Payload) -> AttemptOutcome:
        """Calls the payload on every member; returns when the call is over on the last.

        Raises:
            LaunchError: The ranks could not be started.
        """
        try:
            for rank in self._members:
                self._group.call(rank, payload)
            # The ranks start to work on it while this process sets up its event loop.
            self._register_sources()
            self._job.runner.request_stacks = self._stack_requests.request
            while not self._is_finished():
                self._event_loop.run_once(self._time_to_next_timer())
                self._check_timers()
                self._refresh()
            self._drain_pipes()
            ending = self._ending()
            if ending is Ending.RETURNED and self._policy.ranks_exit:
                self._ranks.expect_ends()
            stacks = [self._group.read_stacks(rank) for rank in range(len(self._job.ranks))]
            oom_killed = ending is Ending.FAILED and self._group.oom_killed()
            return AttemptOutcome(ending, stacks, self._stacks_at_timeout, oom_killed, self._shutdown.escalated)
        finally:
            self._job.runner.request_stacks = no_stacks
            self._stack_requests.close()
            self._output.show(time.monotonic(), all_of_it=True)

    def _member_states(self) -> Iterator[tuple[int, RankState]]:
        """The members' states, by local number."""
        return ((rank, self._job.ranks[rank]) for rank in self._members)

    def _is_finished(self) -> bool:
        return self._shutdown.given_up or not self._unfinished

    def _drain_pipes(self) -> None:
        """Reads what ranks wrote before they answered: a pipe and a channel are not ordered relative to each other."""
        for rank, state in self._member_states():
            if not state.exited:
                self._pipes.drain(rank)
                self._pipes.flush(rank)

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

    def _register_sources(self) -> None:
        self._event_loop.register(self._ranks, self._on_exits)
        self._event_loop.register(self._requests, self._on_request)
        for rank in self._members:
            self._event_loop.register_throttled(self._ranks.channels[rank], partial(self._on_channel, rank))
            self._pipes.register(rank)
            for event in self._group.last_events(rank):
                self._job.apply(rank, event)

    def _on_exits(self) -> None:
        for rank, exited in self._group.new_exits():
            self._on_exit(rank, exited)
        self._release_ranks()

    def _on_exit(self, rank: int, exited: Exited) -> None:
        if self._job.ranks[rank].exited:
            return  # it has reported its exit itself
        self._drain(rank)
        self._job.apply(rank, exited)
        self._unanswered.discard(rank)
        self._unfinished.discard(rank)
        if not self._job.ranks[rank].answered:
            self._on_failure(StopReason.DEATH)

    def _drain(self, rank: int) -> None:
        """Reads the last messages and output of a rank that has exited."""
        channel = self._ranks.channels[rank]
        while channel.is_open and channel.has_data():
            self._on_channel(rank)
        self._pipes.drain(rank)
        self._pipes.unregister(rank)
        self._event_loop.unregister(channel)
        self._pipes.flush(rank)

    def _on_channel(self, rank: int) -> bool:
        """Handles what has arrived; returns whether that was only progress, so that the next read may be throttled."""
        channel = self._ranks.channels[rank]
        is_progress = True
        try:
            messages = channel.receive(wait=False)
            for message in messages or ():
                is_progress &= self._on_message(rank, message)
        except StreamError:
            # Something else has written to the rank's socket, so the rank's messages can no longer be decoded.
            self._ranks.signal(rank, signal.SIGKILL)
            messages = None
        if messages is None:
            self._event_loop.unregister(channel)
        return is_progress and bool(messages) and not channel.is_torn

    def _on_message(self, rank: int, message: Message) -> bool:
        """Handles a message; returns whether it is only progress."""
        event = from_wire(message.header, message.blobs)
        if isinstance(event, (Bar, Metrics)):
            self._apply(rank, event)
            return True
        self._on_event(rank, event, message)
        return False

    def _on_event(self, rank: int, event: Event, message: Message) -> None:
        if isinstance(event, Exited):
            self._on_exit(rank, event)
            return
        if isinstance(event, Stacks):
            self._stack_requests.on_reply(rank, event)
            return
        self._group.on_event(rank, event, message.fds)
        self._apply(rank, _with_cell_name(event))
        self._shutdown.on_event(rank, event)
        if isinstance(event, (Shown, InputRequested)):
            self._show_or_prompt(rank, event)
        if isinstance(event, Failed):
            self._on_failure(StopReason.FAILURE)
        if isinstance(event, (Returned, Failed)):
            self._on_answer(rank)

    def _show_or_prompt(self, rank: int, event: Shown | InputRequested) -> None:
        """Shows rich output, or asks for input, in its order within the rank's output."""
        if isinstance(event, Shown):
            self._pipes.interpose(rank, partial(_show, event) if event.bundle else None)
        else:
            self._pipes.drain(rank)
            self._output.show(time.monotonic(), all_of_it=True)
            self._group.send_input(rank, self._prompt_user(event))

    def _prompt_user(self, request: InputRequested) -> str | None:
        try:
            with raise_on_sigint():
                return front_end.current.request_input(request.output, request.prompt)
        except KeyboardInterrupt:
            self._requests.submit(StopReason.INTERRUPT)
            return None

    def _on_answer(self, rank: int) -> None:
        self._unanswered.discard(rank)
        if self._policy.ranks_exit:
            self._answered.append(rank)
            self._release_ranks()
        else:
            self._unfinished.discard(rank)

    def _release_ranks(self) -> None:
        """Lets the ranks that have answered exit, all together, once all have answered or the shutdown has begun.

        Otherwise, a rank that returns right after the rendezvous would be gone before the others have connected to it.
        """
        if self._shutdown.reason is not None or not self._unanswered:
            for rank in self._answered:
                self._ranks.channels[rank].finish()
            self._answered.clear()

    def _apply(self, rank: int, event: Event) -> None:
        self._stall_watch.on_event(rank, event, time.monotonic())
        self._job.apply(rank, event)

    # Timers, and the end before all ranks have returned

    def _on_failure(self, how: StopReason) -> None:
        if self._shutdown.reason is None:
            self._begin_shutdown(how)

    def _on_request(self) -> None:
        reasons = self._requests.received()
        self._job.apply(None, StopRequested(len(reasons)))
        if not self._shutdown.is_requested:
            self._begin_shutdown(reasons[0])
        if len(reasons) > 1:
            self._shutdown.end_at_once(time.monotonic())

    def _begin_shutdown(self, reason: StopReason) -> None:
        self._shutdown.begin(reason, time.monotonic())
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
        self._stack_requests.poll(now)
        if self._shutdown.reason is None and now >= self._next_stall_check:
            self._next_stall_check = now + _TIMER_INTERVAL
            self._stall_watch.check(now)
        if self._deadline is not None and self._shutdown.reason is None and now >= self._deadline:
            self._begin_shutdown(StopReason.TIMEOUT)
            self._stack_requests.request(self._on_timeout_stacks)
        self._shutdown.escalate(now)

    def _on_timeout_stacks(self, stacks: StacksByRank) -> None:
        """Keeps the stacks for the timeout error, and lets the escalation continue."""
        self._stacks_at_timeout = stacks
        self._shutdown.skip_wait()


def _with_cell_name(event: Event) -> Event:
    """Adds the location, with the cell's name, to the detail of a phase. Only the kernel knows cell names."""
    if isinstance(event, PhaseChanged) and event.frame is not None:
        return replace(event, detail=f"{event.detail} at {stack_frames.where(event.frame)}")
    return event


def _show(event: Shown) -> None:
    """Shows a rich output in the front end."""
    content = json.loads(b"".join(map(bytes, event.bundle)))
    front_end.current.display(content["data"], content["metadata"], event.display_id, update=event.update)
