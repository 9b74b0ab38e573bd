"""Runs one call on a group of ranks: hands it to them, and pumps what they say until it is over on all of them."""

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
from notebook_accel.launch.driver.attempt import Attempt, Ending
from notebook_accel.launch.driver.event_loop import EventLoop
from notebook_accel.launch.driver.group import RankGroup
from notebook_accel.launch.driver.pipes import Pipes
from notebook_accel.launch.driver.request_stacks import StackRequests
from notebook_accel.launch.driver.shutdown import Shutdown
from notebook_accel.launch.driver.stall_watch import StallWatch
from notebook_accel.launch.driver.stopping import ONE_CALL, Life, Reason, StopRequests, raising
from notebook_accel.launch.job.job import Job, no_stacks
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.job.stacks import StacksByRank
from notebook_accel.launch.show import front_end
from notebook_accel.launch.show.output import Output
from notebook_accel.launch.wire import frames
from notebook_accel.launch.wire.payload import Payload
from notebook_accel.launch.wire.stream import Message

_TICK = 0.1
"""Seconds between two looks at the clock, and at most ten redraws a second."""
_SHOW = 0.02
"""Seconds between two looks for lines to show."""


class Run:
    """The pump of one call. Lives on the thread that calls it.

    Args:
        group: The ranks, by their number on this machine; the job has the same.
        job: What takes in all that they say.
        view: Is refreshed while they run.
        output: What they write.
        requests: To stop.
        deadline: When they are to be stopped, on the monotonic clock.
        stall_after: Seconds without progress after which it is told what the ranks wait for.
        elsewhere: How many ranks there are on other machines.
        life: What the call means to the ranks.
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
        elsewhere: int = 0,
        life: Life = ONE_CALL,
        members: Sequence[int] | None = None,
    ) -> None:
        self._group = group
        self._ranks = group.ranks
        self._members = range(len(job.ranks)) if members is None else members
        self._life = life
        self._job = job
        self._view = view
        self._output = output
        self._requests = requests
        self._deadline = deadline
        self._event_loop = EventLoop()
        self._pipes = Pipes(group, job, output, self._event_loop, self._apply)
        self._told: StacksByRank = {}
        self._stack_requests = StackRequests(self._ranks, job, group.stacks)
        self._stalls = StallWatch(job, stall_after, elsewhere, self._stack_requests.request, time.monotonic())
        self._stalls_due = 0.0
        self._shutdown = Shutdown(group, job, life, self._members)
        self._running = set(self._members)
        """Those that have neither answered nor ended."""
        self._left = set(self._members)
        """Those on which the call is not over."""
        self._held: list[int] = []
        """Those that have answered, and are not to end yet."""
        self._shown = 0.0

    def __call__(self, payload: Payload) -> Attempt:
        """Calls the payload on every member; returns when it is over on the last.

        Raises:
            LaunchError: The ranks could not be started.
        """
        try:
            for rank in self._members:
                self._group.call(rank, payload)
            # They begin; what it takes to hear them is made ready meanwhile.
            self._listen()
            self._job.runner.request_stacks = self._stack_requests.request
            while not self._is_over():
                self._event_loop.wait(self._pause())
                self._look_at_clock()
                self._show()
            self._take_the_rest()
            ending = self._ending()
            if ending is Ending.RETURNED and self._life.ends:
                self._ranks.expect_ends()
            stacks = [self._group.read_stacks(rank) for rank in range(len(self._job.ranks))]
            oom_killed = ending is Ending.FAILED and self._group.oom_killed()
            return Attempt(ending, stacks, self._told, oom_killed, self._shutdown.disturbed)
        finally:
            self._job.runner.request_stacks = no_stacks
            self._stack_requests.close()
            self._output.show(time.monotonic(), all_of_it=True)

    def _states(self) -> Iterator[tuple[int, RankState]]:
        """The members, by their number on this machine."""
        return ((rank, self._job.ranks[rank]) for rank in self._members)

    def _is_over(self) -> bool:
        return self._shutdown.given_up or not self._left

    def _take_the_rest(self) -> None:
        """What a rank has written before it answered may still be on its way."""
        for rank, state in self._states():
            if not state.exited:
                self._pipes.take(rank)
                self._pipes.end(rank)

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._shown >= _SHOW:
            self._shown = now
            self._output.show(now)
            self._view.refresh()

    def _ending(self) -> Ending:
        if self._shutdown.is_requested:
            return Ending.STOPPED
        if self._shutdown.reason is Reason.TIMEOUT:
            return Ending.TIMED_OUT
        returned = all(state.returned for _, state in self._states())
        return Ending.RETURNED if returned else Ending.FAILED

    # What can be heard

    def _listen(self) -> None:
        self._event_loop.register(self._ranks, self._on_changes)
        self._event_loop.register(self._requests, self._on_request)
        for rank in self._members:
            self._event_loop.register_throttled(self._ranks.channels[rank], partial(self._on_channel, rank))
            self._pipes.listen(rank)
            for event in self._group.known(rank):
                self._job.apply(rank, event)

    def _on_changes(self) -> None:
        for rank, exited in self._group.changes():
            self._on_exit(rank, exited)
        self._release()

    def _on_exit(self, rank: int, exited: Exited) -> None:
        if self._job.ranks[rank].exited:
            return  # it has said so itself
        self._drain(rank)
        self._job.apply(rank, exited)
        self._running.discard(rank)
        self._left.discard(rank)
        if not self._job.ranks[rank].answered:
            self._on_failure(Reason.DEATH)

    def _drain(self, rank: int) -> None:
        """Takes what a rank that has ended said and wrote last."""
        channel = self._ranks.channels[rank]
        while channel.is_open and channel.has_data():
            self._on_channel(rank)
        self._pipes.take(rank)
        self._pipes.forget(rank)
        self._event_loop.forget(channel)
        self._pipes.end(rank)

    def _on_channel(self, rank: int) -> bool:
        """Takes what has arrived; returns whether that was nothing but progress, so that more of it can wait."""
        channel = self._ranks.channels[rank]
        is_progress = True
        try:
            messages = channel.receive(wait=False)
            for message in messages or ():
                is_progress &= self._on_message(rank, message)
        except StreamError:
            # Something else than the rank writes there; the rank can't be understood any more.
            self._ranks.signal(rank, signal.SIGKILL)
            messages = None
        if messages is None:
            self._event_loop.forget(channel)
        return is_progress and bool(messages) and not channel.is_torn

    def _on_message(self, rank: int, message: Message) -> bool:
        """Takes it in; returns whether it is mere progress."""
        event = from_wire(message.header, message.blobs)
        if isinstance(event, (Bar, Metrics)):
            self._apply(rank, event)
            return True
        self._on_news(rank, event, message)
        return False

    def _on_news(self, rank: int, event: Event, message: Message) -> None:
        if isinstance(event, Exited):
            self._on_exit(rank, event)
            return
        if isinstance(event, Stacks):
            self._stack_requests.hear(rank, event)
            return
        self._group.heard(rank, event, message.fds)
        self._apply(rank, _placed(event))
        self._shutdown.heard(rank, event)
        if isinstance(event, (Shown, InputRequested)):
            self._on_user(rank, event)
        if isinstance(event, Failed):
            self._on_failure(Reason.FAILURE)
        if isinstance(event, (Returned, Failed)):
            self._on_answer(rank)

    def _on_user(self, rank: int, event: Shown | InputRequested) -> None:
        """Something for the user alone, at its place in what the rank has written."""
        if isinstance(event, Shown):
            content = json.loads(b"".join(map(bytes, event.bundle)))
            show = partial(front_end.current.display, content["data"], content["metadata"], event.display_id)
            self._pipes.interpose(rank, partial(show, update=event.update))
        else:
            self._pipes.take(rank)
            self._output.show(time.monotonic(), all_of_it=True)
            self._group.answer(rank, self._ask(event))

    def _ask(self, question: InputRequested) -> str | None:
        try:
            with raising():
                return front_end.current.ask(question.said, question.prompt)
        except KeyboardInterrupt:
            self._requests.ask(Reason.INTERRUPT)
            return None

    def _on_answer(self, rank: int) -> None:
        self._running.discard(rank)
        if self._life.ends:
            self._held.append(rank)
            self._release()
        else:
            self._left.discard(rank)

    def _release(self) -> None:
        """Lets ranks end: all at once when all have returned, so that none takes a connection from another.

        A rank that returns right after the rendezvous would else be gone before the others have all connected to it.
        """
        if self._shutdown.reason is not None or not self._running:
            for rank in self._held:
                self._ranks.channels[rank].finish()
            self._held.clear()

    def _apply(self, rank: int, event: Event) -> None:
        self._stalls.hear(rank, event, time.monotonic())
        self._job.apply(rank, event)

    # How it ends before its time

    def _on_failure(self, how: Reason) -> None:
        if self._shutdown.reason is None:
            self._stop(how)

    def _on_request(self) -> None:
        given = self._requests.take()
        self._job.apply(None, StopRequested(len(given)))
        if not self._shutdown.is_requested:
            self._stop(given[0])
        if len(given) > 1:
            self._shutdown.end_at_once(time.monotonic())

    def _stop(self, reason: Reason) -> None:
        self._shutdown.begin(reason, time.monotonic())
        self._release()

    def _pause(self) -> float:
        """Seconds until something may have to be done although nothing is heard."""
        now = time.monotonic()
        times = [now + _TICK]
        if (due := self._shutdown.due()) is not None:
            times.append(due)
        if (due := self._output.next_due) is not None:
            times.append(max(due, self._shown + _SHOW))
        if self._deadline is not None and self._shutdown.reason is None:
            times.append(self._deadline)
        return max(0.0, min(times) - now)

    def _look_at_clock(self) -> None:
        now = time.monotonic()
        self._stack_requests.look(now)
        if self._shutdown.reason is None and now >= self._stalls_due:
            self._stalls_due = now + _TICK
            self._stalls.look(now)
        if self._deadline is not None and self._shutdown.reason is None and now >= self._deadline:
            self._stop(Reason.TIMEOUT)
            self._stack_requests.request(self._end_now)
        self._shutdown.escalate(now)

    def _end_now(self, told: StacksByRank) -> None:
        """The ranks have told where they are."""
        self._told = told
        self._shutdown.skip_wait()


def _placed(event: Event) -> Event:
    """What a rank says with the names that the notebook has for places."""
    if isinstance(event, PhaseChanged) and event.frame is not None:
        return replace(event, detail=f"{event.detail} at {frames.where(event.frame)}")
    return event
