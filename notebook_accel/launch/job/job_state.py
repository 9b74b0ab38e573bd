"""The state of a job, as the fold of its events. The same events always give the same state."""

from __future__ import annotations

import enum
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from notebook_accel.events import (
    AttemptStarted,
    CheckpointSaved,
    Cleared,
    Controlled,
    ControlsChanged,
    DevicesAwaited,
    EnergyUsed,
    Event,
    JobEnded,
    JobStarted,
    Lines,
    Metrics,
    Notice,
    Phase,
    PhaseChanged,
    Remarked,
    Report,
    Reports,
    RuleChanged,
    Seeded,
    Shown,
    Stalled,
    StopRequested,
    TrainingStarted,
    TunableChanged,
    as_float,
)
from notebook_accel.launch.job import energy, text
from notebook_accel.launch.job.energy import Energy
from notebook_accel.launch.job.metric_charts import JobCharts
from notebook_accel.launch.job.output_log import OutputLog
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.job.report_log import ReportLog

MAX_CHANGES = 100
"""The number of a job's last changes that are stored."""
Listener = Callable[["int | None", Event], object]


@dataclass(frozen=True)
class Restart:
    """How one further attempt began."""

    attempt: int
    """Its number, from 0 for the first attempt."""
    size: int
    """The number of its ranks."""
    reached: int | None
    """How many steps the attempt before it had done, if that is known."""
    step: int | None = None
    """The step that it resumed from; `None` if its training has not started, or saves no checkpoints."""


class Status(str, enum.Enum):
    """The status of a job. Only the process that runs the job changes it."""

    STARTING = "starting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    LOST = "ended with its kernel"
    LOST_WITH_COMMAND = "ended with its command"
    LOST_WITH_PROCESS = "ended with its process"

    @property
    def ended(self) -> bool:
        return self not in (Status.STARTING, Status.RUNNING)

    @property
    def is_lost(self) -> bool:
        """Whether what ran the job ended first, without recording how the job ended."""
        return self in (Status.LOST, Status.LOST_WITH_COMMAND, Status.LOST_WITH_PROCESS)


class JobState:
    """The state of a job and its ranks after the events so far. Views read it and have no state of their own."""

    def __init__(self, start: JobStarted) -> None:
        self._listeners: list[Listener] = []
        self.report_log = ReportLog()
        """Every report, of all attempts."""
        self.output_log = OutputLog()
        """What the ranks have written and displayed, in all attempts."""
        self._start = start
        self.id = start.id
        """The ID by which `attach` finds it."""
        self.name = start.name
        """The name of the launched function."""
        self.given_title = start.title
        """What the user calls it; empty if it is called as its function."""
        self.notes = start.notes
        """The user's notes."""
        self.hardware = start.hardware
        """The devices that its ranks run on, as text."""
        self.devices = tuple(start.devices)
        """What identifies the devices of this attempt, as in `Plan.device_ids`."""
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
        self.began: int | None = None
        """The step that the training of this attempt started at; `None` until it starts, and without `epochs`."""
        self.restarts: list[Restart] = []
        """How each attempt but the first began."""
        self.status = Status.STARTING
        self.awaits = ""
        """What it waits for before it starts its ranks; empty if it doesn't."""
        self.stopping = 0
        """How often it was requested to stop. The second request kills its ranks."""
        self.stalled: Stalled | None = None
        """The location of each rank while the job is stalled, or if it ended while stalled; otherwise `None`."""
        self.changes: deque[Controlled] = deque(maxlen=MAX_CHANGES)
        """What was done to it while it ran: pauses, values that were tuned, and the like; the last of them."""
        self.remarks: deque[Remarked] = deque(maxlen=MAX_CHANGES)
        """Lines for its notes that came while it ran, the last of them."""
        self.saved_step: int | None = None
        """The step of its newest checkpoint; `None` while there is none."""
        self.seed: int | None = None
        """That of `set_seed`; `None` if it was not called."""
        self.controls: ControlsChanged | None = None
        """What can be done to the training of this attempt; `None` until it uses an Accelerator."""
        self.tunables: dict[str, TunableChanged] = {}
        """The values of this attempt that can be changed while it runs, by name."""
        self._earlier_energy: EnergyUsed | None = None
        """What the devices of earlier attempts have used; `None` if that was not counted."""
        self.rule_changes: dict[int, RuleChanged] = {}
        """The rules that it has had, by number, each as it is now."""
        self._start_ranks(start.size)

    @property
    def title(self) -> str:
        """What the user calls it, or `train()`, `In[3]` for a cell, `train.py` or `-m train` for a script."""
        return self.given_title or text.title(self.name)

    @property
    def launched(self) -> JobStarted:
        """The event that began it, with its call, settings, devices, and versions."""
        return self._start

    @property
    def ranks(self) -> list[RankState]:
        """The current state of each rank."""
        return self._ranks

    @property
    def first_size(self) -> int:
        """The number of ranks of the first attempt."""
        return self._start.size

    @property
    def resumable(self) -> bool:
        """Whether it ended unfinished, with a checkpoint that it can be resumed from in another kernel."""
        is_unfinished = self.status.ended and self.status is not Status.DONE
        return is_unfinished and self.saved_step is not None and bool(self.launched.checkpoint_dir)

    @property
    def step(self) -> int | None:
        """How many steps its training has done in this attempt; `None` if that is not known."""
        return max((state.step for state in self._ranks if state.step is not None), default=None)

    @property
    def seconds(self) -> float:
        """The time from its start until now or its end, in seconds."""
        return (self.ended or time.time()) - self.started

    @property
    def energy(self) -> Energy | None:
        """What its devices have used while it ran, for whatever ran there; `None` if nothing was counted."""
        return energy.of(self._energy_used, self._start.co2_per_kwh)

    @property
    def _energy_used(self) -> EnergyUsed | None:
        return energy.total(self._earlier_energy, self._ranks, self.world_size)

    @property
    def is_paused(self) -> bool:
        """Whether its training waits until the user resumes it."""
        return any(state.phase is Phase.PAUSED for state in self._ranks)

    def apply(self, rank: int | None, event: Event) -> None:
        """Applies an event of one rank, by its index in this job, or of the whole job (`None`)."""
        if isinstance(event, Metrics):
            values = {name: as_float(value) for name, value in event.values.items()}
            (event,) = Reports.pack([Report(values, event.step, event.at)])
        if rank is not None and isinstance(event, Reports):
            self._apply_reports(rank, event)
        elif rank is not None and isinstance(event, (Shown, Cleared)):
            self.output_log.add_display(self._ranks[rank].rank, event)
        elif rank is not None:
            self._ranks[rank].apply(event)
            if isinstance(event, Lines):
                seconds = event.at - self.started if event.at else 0.0
                self.output_log.add(self._ranks[rank].rank, event.stream, seconds, event.texts)
        elif isinstance(event, AttemptStarted):
            self._begin_attempt(event)
        elif isinstance(event, Notice):
            self.output_log.add_notice(event.text)
        elif isinstance(event, TrainingStarted):
            if self.began is None:
                self.began = event.step
                if self.restarts:
                    self.restarts[-1] = replace(self.restarts[-1], step=event.step)
        elif isinstance(event, Controlled):
            self.changes.append(event)
        elif isinstance(event, ControlsChanged):
            self.controls = event
        elif isinstance(event, TunableChanged):
            self.tunables[event.name] = event
        elif isinstance(event, RuleChanged):
            self.rule_changes[event.number] = event
        elif isinstance(event, Remarked):
            self.remarks.append(event)
        elif isinstance(event, CheckpointSaved):
            self.saved_step = event.step
        elif isinstance(event, EnergyUsed):
            self._earlier_energy = event
        elif isinstance(event, Seeded):
            self.seed = event.seed
        elif isinstance(event, DevicesAwaited):
            self.awaits = event.what
        elif isinstance(event, Stalled):
            self.stalled = event if event.places else None
        elif isinstance(event, StopRequested):
            self.stopping = event.times
        elif isinstance(event, JobEnded):
            self.outcome, self.status, self.ended = event, Status(event.status), event.at
            if self.status.is_lost:
                self._lose_ranks()
            elif self.status is Status.DONE:
                self.stalled = None  # it went on and returned before anything else could show that
        for listener in self._listeners:
            listener(rank, event)

    def events(self) -> Iterator[tuple[int | None, Event]]:
        """The shortest sequence of events whose fold equals this state.

        It is without the reports, which `report_log` has, and without what ranks wrote, which `output_log` has.
        """
        yield None, replace(self._start, at=self.started)
        if self.status is not Status.STARTING:
            yield from ((None, event) for event in self._attempts())
        if self.awaits:
            yield None, DevicesAwaited(self.awaits)
        stored = (*self.changes, *self.remarks, *self.tunables.values(), *self.rule_changes.values())
        yield from ((None, event) for event in stored)
        if self._earlier_energy is not None:
            yield None, self._earlier_energy
        if self.controls is not None:
            yield None, self.controls
        if self.saved_step is not None:
            yield None, CheckpointSaved(self.saved_step)
        if self.seed is not None:
            yield None, Seeded(self.seed)
        for rank, state in enumerate(self._ranks):
            yield from ((rank, event) for event in state.events())
        if self.stalled is not None:
            yield None, self.stalled
        if self.stopping:
            yield None, StopRequested(self.stopping)
        if self.outcome is not None:
            yield None, self.outcome

    def restore(self, events: Sequence[tuple[int | None, Event]], new: Iterable[tuple[int | None, Event]] = ()) -> None:
        """Takes a state from its `events`; what reports and output have made of the same attempt stays.

        Other threads see either the state before or the new one.

        Args:
            events: The events, of which the first is `JobStarted`.
            new: Those that `listen` is for: what has come since the last time.
        """
        (_, start), *rest = events
        assert isinstance(start, JobStarted)
        made = JobState(start)
        for rank, event in rest:
            if rank is None or 0 <= rank < len(made._ranks):
                made.apply(rank, event)
        kept = {"_listeners", "report_log", "output_log"}
        if (made.id, made.attempt, len(made._ranks)) == (self.id, self.attempt, len(self._ranks)):
            kept |= {"_ranks", "charts"}
            for state, found in zip(self._ranks, made._ranks, strict=True):
                state.take(found)
        vars(self).update((name, value) for name, value in vars(made).items() if name not in kept)
        for rank, event in new:
            for listener in self._listeners:
                listener(rank, event)

    def listen(self, listener: Listener) -> None:
        """Calls `listener(rank, event)` for each event from now on, after the event was applied."""
        self._listeners.append(listener)

    def _begin_attempt(self, event: AttemptStarted) -> None:
        size = event.size or self._start.size
        self.attempt = event.attempt
        if event.attempt:
            self.output_log.add_attempt(event.attempt)
            self.restarts.append(Restart(event.attempt, size, event.reached))
        else:
            self.restarts.clear()
        self._earlier_energy = self._energy_used
        self.began = None
        self.awaits = ""
        self.devices = tuple(event.devices or self._start.devices)
        self.status = Status.RUNNING
        self.world_size = self._start.world_size + size - self._start.size
        self.local_size = self._start.local_size or self._start.size
        if self.local_size == self._start.size:  # they are all on this node
            self.local_size = size
        self._start_ranks(size)
        self.stalled = None

    def _attempts(self) -> Iterator[AttemptStarted | TrainingStarted]:
        if not self.restarts:
            yield AttemptStarted(self.attempt, devices=self.devices)
        for restart in self.restarts:
            yield AttemptStarted(restart.attempt, restart.size, restart.reached, self.devices)
            if restart.step is not None and restart is not self.restarts[-1]:
                yield TrainingStarted(restart.step)
        if self.began is not None:
            yield TrainingStarted(self.began)

    def _lose_ranks(self) -> None:
        """Marks the ranks that still ran as stopped: ranks end with the process that launched them."""
        for state in self._ranks:
            if not state.phase.ended:
                state.apply(PhaseChanged(Phase.STOPPED))

    def _apply_reports(self, rank: int, reports: Reports) -> None:
        attempt = self.attempt if reports.attempt is None else reports.attempt
        self.report_log.add(rank, replace(reports, attempt=attempt))
        if attempt == self.attempt:
            rows = list(reports.rows())
            for row in rows:
                self._ranks[rank].metrics.update(row.values)
            self.charts.add(rank, rows)

    def _start_ranks(self, size: int) -> None:
        self._ranks = [RankState(self._start.first + index) for index in range(size)]
        self.charts = JobCharts()
        """The charts of the metrics of this attempt."""
        self.controls = None
        self.tunables = {}
