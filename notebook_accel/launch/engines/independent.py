"""Ranks that are each a world of their own, so that one that dies is replaced while the others continue.

For their caller they are the ranks of one start: a replacement is the same rank, with another process.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from functools import partial
from typing import Protocol

from notebook_accel.errors import LaunchError
from notebook_accel.events import Cleared, Event, Exited, Failed, Returned, Shown, Written
from notebook_accel.launch.engines.contract import Engine, RanksSpec
from notebook_accel.launch.engines.ranks import RankProcess, Ranks
from notebook_accel.launch.system.network import ReservedPorts
from notebook_accel.launch.wire.event_loop import EventLoop
from notebook_accel.launch.wire.payload import Payload


class Fate(enum.Enum):
    """What becomes of a rank that has ended without an answer."""

    REPLACED = "replaced"  # another process continues
    DONE = "done"  # nothing was left to do, so it need not answer
    FAILED = "failed"  # the whole call fails


class Work(Protocol):
    """What the ranks do, as far as it is neither for the caller nor for the engine."""

    def begin(self, send: Callable[[int, Event], object], report: Callable[[int, Event], object]) -> None:
        """Takes a function that sends an event to a rank, and one that reports an event as if a rank had sent it."""

    def on_event(self, rank: int, event: Event) -> bool:
        """Takes an event of a rank; returns whether it was for the work: then it goes no further."""

    def on_exit(self, rank: int, exited: Exited, *, oom_killed: bool) -> Fate:
        """Takes the end of a rank that has not answered its call."""


class IndependentRanks(Ranks):
    """Ranks of an engine, each started on its own.

    Args:
        engine: Starts them. Its ranks must be processes.
        alone: Returns what to start for a rank.
        size: Their number.
        loop: Reads what they send.
        work: What they do.
    """

    processes: list[RankProcess]

    def __init__(
        self,
        engine: Engine,
        alone: Callable[[int], RanksSpec],
        size: int,
        loop: EventLoop,
        work: Work,
    ) -> None:
        super().__init__(size, ReservedPorts(), loop)
        self._engine = engine
        self._alone = alone
        self._work = work
        self._payload: Payload | None = None
        self._answered: set[int] = set()
        self._is_stopping = False
        self._inner: list[Ranks] = []
        self.processes = []
        work.begin(lambda rank, event: self.send([rank], event), self._pass_on)
        try:
            for rank in range(size):
                self._inner.append(self._begin(rank))
                self.processes.append(self._inner[rank].processes[0])
        except BaseException:
            self.close()
            raise

    def _begin(self, rank: int) -> Ranks:
        inner = self._engine.start(self._alone(rank), self.loop)
        inner.members, inner.listener = [0], partial(self._on_event, rank)
        inner.on_failure = lambda error: self.on_failure(error)
        return inner

    def _on_event(self, rank: int, of_inner: int, event: Event) -> None:
        del of_inner
        if self._work.on_event(rank, event):
            return
        if isinstance(event, (Returned, Failed)):
            self._answered.add(rank)
        if isinstance(event, Exited) and rank not in self._answered and not self._is_stopping:
            fate = self._work.on_exit(rank, event, oom_killed=self.oom_killed())
            if fate is Fate.REPLACED:
                waiting = RankProcess()  # a call has been sent, and it has not exited
                waiting.on_call()
                self.processes[rank] = waiting
                self.loop.call_later(0, partial(self._restart, rank, event))  # the loop still reads from the old one
                return
            if fate is Fate.DONE:
                self._answered.add(rank)
                self._pass_on(rank, Returned())
        self._pass_on(rank, event)

    def _pass_on(self, rank: int, event: Event) -> None:
        if self.listener is not None:
            self.listener(rank, event)
        elif isinstance(event, (Written, Shown, Cleared)):
            self._keep(rank, event)

    def _restart(self, rank: int, exited: Exited) -> None:
        if self._is_stopping:
            self.processes[rank].on_event(exited)
            self._pass_on(rank, exited)
            return
        self._inner[rank].close()
        try:
            self._inner[rank] = self._begin(rank)
        except LaunchError as error:
            self.on_failure(error)
            return
        self.processes[rank] = self._inner[rank].processes[0]
        assert self._payload is not None
        self.call([rank], self._payload)

    # What is asked of a rank goes to the one that it is now

    def _call(self, ranks: Collection[int], payload: Payload) -> None:
        self._payload = payload
        for rank in ranks:
            self._inner[rank]._call([0], payload)

    def _finish(self, ranks: Collection[int]) -> None:
        for rank in ranks:
            self._inner[rank]._finish([0])

    def send(self, ranks: Collection[int], event: Event) -> None:
        for rank in ranks:
            self._inner[rank].send([0], event)

    def signal(self, rank: int, signum: int) -> None:
        self._is_stopping = True
        self._inner[rank].signal(0, signum)

    def dump_stacks(self, ranks: Collection[int], number: int) -> None:
        for rank in ranks:
            self._inner[rank].dump_stacks([0], number)

    def pause(self, rank: int) -> None:
        self._inner[rank].pause(0)

    def resume(self, rank: int) -> None:
        self._inner[rank].resume(0)

    def close_store(self) -> None:
        for each in self._inner:
            each.close_store()

    def expect_ends(self) -> None:
        for each in self._inner:
            each.expect_ends()

    def close(self) -> None:
        self._is_stopping = True
        for each in self._inner:
            each.close()
        super().close()
