"""The state of a job, as the fold of its events. The same events always give the same state."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from notebook_accel.events import (
    AttemptStarted,
    Event,
    JobEnded,
    JobStarted,
    Phase,
    PhaseChanged,
    Stalled,
    StopRequested,
)
from notebook_accel.launch.job import text
from notebook_accel.launch.job.rank_state import RankState

Listener = Callable[["int | None", Event], object]


class Status(str, enum.Enum):
    """The status of a job. Only the process that runs the job changes it."""

    STARTING = "starting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    LOST = "ended with its kernel"

    @property
    def ended(self) -> bool:
        return self not in (Status.STARTING, Status.RUNNING)


class JobState:
    """The state of a job and its ranks after the events so far. Views read it and have no state of their own."""

    def __init__(self, start: JobStarted) -> None:
        self._listeners: list[Listener] = []
        self._reset(start)

    def _reset(self, start: JobStarted) -> None:
        """Sets the state after a job's first event."""
        self._start = start
        self.id = start.id
        """The ID by which `attach` finds it."""
        self.name = start.name
        """The name of the launched function."""
        self.hardware = start.hardware
        """The devices that its ranks run on, as text."""
        self.notice = start.notice
        """Choices that were made for the user, one per line."""
        self.world_size = start.world_size
        self.label = start.label
        """The template for the label of output lines, if not the usual one."""
        self.local_size = start.local_size or start.size
        """Ranks on each node."""
        self.started = start.at
        """Seconds since the epoch."""
        self.ended: float | None = None
        self.outcome: JobEnded | None = None
        self.attempt = 0
        self.status = Status.STARTING
        self.stopping = 0
        """How often it was requested to stop. The second request kills its ranks."""
        self.stalled: Stalled | None = None
        """The location of each rank while the job is stalled, or if it ended while stalled; otherwise `None`."""
        self._ranks = self._fresh_ranks()

    @property
    def title(self) -> str:
        """What the user calls it: `train()`, or `In[3]` for a cell, `train.py` or `-m train` for a script."""
        return text.title(self.name)

    @property
    def ranks(self) -> list[RankState]:
        """The current state of each rank."""
        return self._ranks

    @property
    def seconds(self) -> float:
        """How long it has run, or ran."""
        return (self.ended or time.time()) - self.started

    def apply(self, rank: int | None, event: Event) -> None:
        """Applies an event of one rank, by its index in this job, or of the whole job (`None`)."""
        if rank is not None:
            self._ranks[rank].apply(event)
        elif isinstance(event, JobStarted):
            self._reset(event)
        elif isinstance(event, AttemptStarted):
            self.attempt = event.attempt
            self.status = Status.RUNNING
            self._ranks = self._fresh_ranks()
            self.stalled = None
        elif isinstance(event, Stalled):
            self.stalled = event if event.places else None
        elif isinstance(event, StopRequested):
            self.stopping = event.times
        elif isinstance(event, JobEnded):
            self.outcome, self.status, self.ended = event, Status(event.status), event.at
            if self.status is Status.LOST:
                self._lose_ranks()
        for listener in self._listeners:
            listener(rank, event)

    def events(self) -> Iterator[tuple[int | None, Event]]:
        """The shortest sequence of events whose fold equals this state."""
        yield None, replace(self._start, at=self.started)
        if self.status is not Status.STARTING:
            yield None, AttemptStarted(self.attempt)
        for rank, state in enumerate(self._ranks):
            yield from ((rank, event) for event in state.events())
        if self.stalled is not None:
            yield None, self.stalled
        if self.stopping:
            yield None, StopRequested(self.stopping)
        if self.outcome is not None:
            yield None, self.outcome

    def listen(self, listener: Listener) -> None:
        """Calls `listener(rank, event)` for each event from now on, after the event was applied."""
        self._listeners.append(listener)

    def _lose_ranks(self) -> None:
        """Marks the ranks that still ran as stopped: ranks end with the process that launched them."""
        for state in self._ranks:
            if not state.phase.ended:
                state.apply(PhaseChanged(Phase.STOPPED))

    def _fresh_ranks(self) -> list[RankState]:
        return [RankState(self._start.first + index) for index in range(self._start.size)]
