"""The fold of a job's events: all that is known of a job, whoever runs it. The same events give the same fold."""

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
    """What has become of a job. Only its runner moves it."""

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


class Fold:
    """What the events so far say of a job and of its ranks. Views read it and own nothing."""

    def __init__(self, start: JobStarted) -> None:
        self._listeners: list[Listener] = []
        self._take(start)

    def _take(self, start: JobStarted) -> None:
        """Starts from nothing but a job's first event."""
        self._start = start
        self.id = start.id
        """By which `attach` finds it."""
        self.name = start.name
        """The launched function's."""
        self.hardware = start.hardware
        """What its ranks run on, in words."""
        self.world_size = start.world_size
        self.label = start.label
        """The template for the label of output lines, if not the usual one."""
        self.local_size = start.local_size or start.size
        """Ranks on each machine."""
        self.started = start.at
        """Seconds since the epoch."""
        self.ended: float | None = None
        self.outcome: JobEnded | None = None
        self.attempt = 0
        self.status = Status.STARTING
        self.stopping = 0
        """How often its end has been asked for. The second time kills its ranks."""
        self.stalled: Stalled | None = None
        """Where each rank is, while they make no progress and wait; also of a job that has ended so."""
        self._ranks = self._fresh_ranks()

    @property
    def title(self) -> str:
        """What the user calls it: `train()`, or `In[3]` for a cell, `train.py` or `-m train` for a script."""
        return text.title(self.name)

    @property
    def ranks(self) -> list[RankState]:
        """What is known of each rank, now."""
        return self._ranks

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return (self.ended or time.time()) - self.started

    def apply(self, rank: int | None, event: Event) -> None:
        """Takes in one event of a rank, by its number on this machine, or of the whole job (`None`)."""
        if rank is not None:
            self._ranks[rank].apply(event)
        elif isinstance(event, JobStarted):
            self._take(event)
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
        """The fewest events whose fold is this very job."""
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
        """Has `listener(rank, event)` called for each event from now on, once the job has taken it in."""
        self._listeners.append(listener)

    def _lose_ranks(self) -> None:
        """Ranks end with the process that has launched them."""
        for state in self._ranks:
            if not state.phase.ended:
                state.apply(PhaseChanged(Phase.STOPPED))

    def _fresh_ranks(self) -> list[RankState]:
        return [RankState(self._start.first + index) for index in range(self._start.size)]
