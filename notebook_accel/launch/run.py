"""Runs one attempt of a job: starts a group of ranks, calls the function on them, and pumps until all have ended."""

from __future__ import annotations

import contextlib
import enum
import os
import selectors
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from notebook_accel.errors import StreamError
from notebook_accel.events import Exited, Failed, Hello, Line, Phase, Returned, from_wire
from notebook_accel.launch import frontend
from notebook_accel.launch.engines.base import Ranks
from notebook_accel.launch.job import Job
from notebook_accel.launch.output import Output, spans
from notebook_accel.launch.payload import Payload
from notebook_accel.launch.rank import STACKS_SIGNAL
from notebook_accel.launch.rank_state import RankState
from notebook_accel.launch.stopping import AT_ONCE, GRACE, LADDERS, Reason, StopRequests
from notebook_accel.launch.stream import Message

_READ = 2**20
_TICK = 0.1
"""Seconds between two looks at the clock, and at most ten redraws a second."""
_SHOW = 0.02
"""Seconds between two looks for lines to show."""
_PATIENCE = 1.0
"""Seconds after an interrupt before saying what is being waited for."""


class HasFileno(Protocol):
    """What a selector can wait for."""

    def fileno(self) -> int: ...


_Source = int | HasFileno


class Ending(enum.Enum):
    """How an attempt went."""

    RETURNED = "returned"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    STOPPED = "stopped"


@dataclass
class Attempt:
    """What an attempt leaves."""

    ending: Ending
    stacks: list[str]
    """What each rank has written to its stacks file."""
    oom_killed: bool


class Run:
    """The pump of one attempt. Lives on the thread that calls it."""

    def __init__(
        self,
        ranks: Ranks,
        job: Job,
        view: frontend.View,
        output: Output,
        requests: StopRequests,
        deadline: float | None,
    ) -> None:
        self._ranks = ranks
        self._job = job
        self._view = view
        self._output = output
        self._requests = requests
        self._deadline = deadline
        self._selector = selectors.DefaultSelector()
        self._stacks: dict[int, int] = {}
        self._reason: Reason | None = None
        self._steps: list[tuple[float, signal.Signals]] = []
        self._stop_began = 0.0
        self._told_patience = False
        self._shown = 0.0
        self._ooms = _oom_kills()

    def __call__(self, payload: Payload) -> Attempt:
        """Calls the payload on every rank; returns when the last has ended.

        Raises:
            LaunchError: The ranks could not be started.
        """
        self._listen()
        try:
            self._ranks.call(payload)
            while not all(state.exited for state in self._job.ranks):
                for key, _ in self._selector.select(self._pause()):
                    key.data()
                self._look_at_clock()
                self._show()
            ending = self._ending()
            if ending is Ending.RETURNED:
                self._ranks.part()
            stacks = [self._read_stacks(rank) for rank in range(len(self._job.ranks))]
            return Attempt(ending, stacks, _oom_kills() > self._ooms)
        finally:
            self._output.show(time.monotonic(), all_of_it=True)
            self._selector.close()
            for fd in self._stacks.values():
                os.close(fd)

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._shown >= _SHOW:
            self._shown = now
            self._output.show(now)
            self._view.refresh()

    def _ending(self) -> Ending:
        if self._reason in (Reason.INTERRUPT, Reason.CANCEL):
            return Ending.STOPPED
        if self._reason is Reason.TIMEOUT:
            return Ending.TIMED_OUT
        returned = all(state.returned for state in self._job.ranks)
        return Ending.RETURNED if returned else Ending.FAILED

    # What can be heard

    def _listen(self) -> None:
        self._register(self._ranks, self._on_changes)
        self._register(self._requests, self._on_request)
        for rank, channel in enumerate(self._ranks.channels):
            self._register(channel, partial(self._on_channel, rank))
        for rank, pipes in enumerate(self._ranks.outputs):
            for fd, stream in zip(pipes, ("stdout", "stderr"), strict=True):
                self._register(fd, partial(self._on_output, fd, rank, stream))

    def _register(self, source: _Source, heard: Callable[[], object]) -> None:
        self._selector.register(source, selectors.EVENT_READ, heard)

    def _on_changes(self) -> None:
        for rank, exited in self._ranks.changes():
            self._on_exit(rank, exited)
        self._release()

    def _on_exit(self, rank: int, exited: Exited) -> None:
        if self._job.ranks[rank].exited:
            return  # it has said so itself
        self._drain(rank)
        self._job.apply(rank, exited)
        if not self._job.ranks[rank].answered:
            self._on_failure()

    def _drain(self, rank: int) -> None:
        """Takes what a rank that has ended said last. What it has started may still hold its pipes open."""
        channel = self._ranks.channels[rank]
        while channel.is_open and channel.has_data():
            self._on_channel(rank)
        if self._ranks.outputs:
            for fd, stream in zip(self._ranks.outputs[rank], ("stdout", "stderr"), strict=True):
                while self._on_output(fd, rank, stream):
                    pass
                self._forget(fd)
        self._forget(channel)
        self._keep(rank, "stdout", self._output.end(self._global(rank), time.monotonic()))

    def _on_channel(self, rank: int) -> None:
        """Takes what has arrived."""
        channel = self._ranks.channels[rank]
        try:
            messages = channel.receive(wait=False)
            for message in messages or ():
                self._on_message(rank, message)
        except StreamError:
            # Something else than the rank writes there; the rank can't be understood any more.
            self._ranks.signal(rank, signal.SIGKILL)
            messages = None
        if messages is None:
            self._forget(channel)

    def _on_message(self, rank: int, message: Message) -> None:
        event = from_wire(message.header, message.blobs)
        if isinstance(event, Exited):
            self._on_exit(rank, event)
            return
        if isinstance(event, Hello) and message.fds:
            self._stacks[rank] = message.fds[0]
        self._job.apply(rank, event)
        if isinstance(event, Failed):
            self._on_failure()
        if isinstance(event, (Returned, Failed)):
            self._release()

    def _release(self) -> None:
        """Lets ranks end: all at once when all have returned, so that none takes a connection from another.

        A rank that returns right after the rendezvous would else be gone before the others have all connected to it.
        """
        if self._reason is not None or all(state.answered or state.exited for state in self._job.ranks):
            for channel, state in zip(self._ranks.channels, self._job.ranks, strict=True):
                if state.answered and not state.exited:
                    channel.finish()

    def _on_output(self, fd: int, rank: int, stream: str) -> bool:
        """Takes what has been written; returns whether there may be more."""
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return False
        if not data:
            self._forget(fd)
            return False
        self._keep(rank, stream, self._output.feed(self._global(rank), stream, data, time.monotonic()))
        return True

    def _keep(self, rank: int, stream: str, lines: list[str]) -> None:
        for text in lines[-self._job.ranks[rank].lines.maxlen :]:  # type: ignore[operator]  # it has a maxlen
            self._job.apply(rank, Line(stream, text))

    def _forget(self, source: _Source) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(source)

    def _global(self, rank: int) -> int:
        return self._job.ranks[rank].rank

    # How it ends before its time

    def _on_failure(self) -> None:
        if self._reason is None:
            self._stop(Reason.FAILURE)

    def _on_request(self) -> None:
        given = self._requests.take()
        if self._reason not in (Reason.INTERRUPT, Reason.CANCEL):
            self._stop(given[0])
        if len(given) > 1:
            self._stop_began = time.monotonic()
            self._steps = list(AT_ONCE)

    def _stop(self, reason: Reason) -> None:
        self._reason = reason
        self._stop_began = time.monotonic()
        self._steps = list(LADDERS[reason])
        self._release()

    def _pause(self) -> float:
        """Seconds until something may have to be done although nothing is heard."""
        now = time.monotonic()
        times = [now + _TICK]
        if self._steps:
            times.append(self._stop_began + self._steps[0][0])
        if self._deadline is not None and self._reason is None:
            times.append(self._deadline)
        return max(0.0, min(times) - now)

    def _look_at_clock(self) -> None:
        now = time.monotonic()
        if self._deadline is not None and self._reason is None and now >= self._deadline:
            self._stop(Reason.TIMEOUT)
            self._ask_for_stacks()
        while self._steps and now >= self._stop_began + self._steps[0][0]:
            _, signum = self._steps.pop(0)
            for rank, state in enumerate(self._job.ranks):
                if not state.exited:
                    self._signal(rank, state, signum)
        stopping = self._reason in (Reason.INTERRUPT, Reason.CANCEL)
        if stopping and self._steps and not self._told_patience and now > self._stop_began + _PATIENCE:
            self._told_patience = True
            left = spans(state.rank for state in self._job.ranks if not state.exited)
            frontend.current.notice(
                f"waiting up to {GRACE:g} s for ranks {left} to end; interrupt again to kill them now"
            )

    def _ask_for_stacks(self) -> None:
        for rank, state in enumerate(self._job.ranks):
            if state.pid is not None and not state.exited:  # before its hello, the signal would end it
                self._ranks.signal(rank, STACKS_SIGNAL)

    def _signal(self, rank: int, state: RankState, signum: signal.Signals) -> None:
        if signum == signal.SIGINT and state.phase in (Phase.STARTING, Phase.IDLE):
            signum = signal.SIGKILL  # nothing of the user's runs in it yet, and it could miss the interrupt
        if signum != signal.SIGINT and not state.answered:
            state.stopped = True
        self._ranks.signal(rank, signum)

    def _read_stacks(self, rank: int) -> str:
        fd = self._stacks.get(rank)
        if fd is None:
            return ""
        return os.pread(fd, 2**20, 0).decode(errors="replace")


def _oom_kills() -> int:
    """How many processes the system has ended so far because memory had run out."""
    try:
        with open("/proc/vmstat") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), 0)
    except OSError:
        return 0
