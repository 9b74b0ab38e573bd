"""The state of one rank, as the fold of its events."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from notebook_accel.events import (
    Bar,
    EnergyUsed,
    Event,
    Exited,
    Failed,
    GpuUsage,
    Heartbeat,
    Hello,
    LargestArrays,
    Lines,
    MemoryPeaks,
    NodeLeaving,
    Phase,
    PhaseChanged,
    ProcessUsage,
    ResidentHistory,
    Returned,
    Saving,
    Signalled,
    SnapshotSaved,
    StepTimes,
)
from notebook_accel.launch.job.text import clock, size, value

LOST_CONNECTION = "lost the connection to another rank"
"""How a rank failed whose collective failed only because another one had ended. The exception's own text is about
sockets, and hides the cause."""
WAITS_FOR_INPUT = "waits for your input"
"""The detail of a rank at `input()`, or in the debugger."""
MAX_LINES = 200
"""The number of a rank's last lines that are stored."""
MAX_TEXT = 2**18
"""The characters of these lines together; of longer lines, fewer are stored."""
MAX_CLOSED_BARS = 32
"""The number of a rank's closed bars that are stored."""
_MOST_POINTS = 32
"""Points, of which half are left when there are as many."""
_POINTS_SHOWN = 6
_NOT_AMONG_EVENTS = {"metrics", "lines", "line_characters", "written"}
"""What `RankState.events` leaves out: reports and output are in files of their own."""


@dataclass(frozen=True)
class Line:
    """One line that a rank wrote, without its newline."""

    stream: str
    """`stdout` or `stderr`."""
    text: str


@dataclass
class MemoryHistory:
    """Resident memory at moments."""

    points: list[tuple[float, int]] = field(default_factory=list)
    """Seconds since the epoch, to the millisecond, and bytes: the most until the next point."""

    def add(self, at: float, resident: int) -> None:
        """Adds a sample; one without a time is left out."""
        if at:
            self.points.append((round(1000 * at) / 1000, resident))
            if len(self.points) == _MOST_POINTS:
                self.points = _thinned(self.points)

    def last(self) -> tuple[float, list[int]]:
        """How many seconds the points cover, and the memory at moments evenly spaced over them, also the last one."""
        if len(self.points) < 2:
            return 0.0, []
        begin, end = self.points[0][0], self.points[-1][0]
        moments = [begin + (end - begin) * index / (_POINTS_SHOWN - 1) for index in range(_POINTS_SHOWN)]
        moments[-1] = end
        found = [next(point for point in reversed(self.points) if point[0] <= moment) for moment in moments]
        return end - begin, [resident for _, resident in dict.fromkeys(found)]


@dataclass(repr=False)
class RankState:
    """The state of one rank in the current attempt."""

    rank: int
    """Its global number."""
    phase: Phase = Phase.STARTING
    detail: str = ""
    """What it does in that phase, such as the collective that it waits in; empty if that is not known."""
    importing_since: float = 0.0
    """When it began to import what `detail` names, in seconds since the epoch; 0 if it doesn't import."""
    pid: int | None = None
    host: str = ""
    resident: int = 0
    """Resident memory at its last heartbeat, in bytes."""
    device_used: int | None = None
    """Memory that it held on its device then, in bytes."""
    device_total: int | None = None
    history: MemoryHistory = field(default_factory=MemoryHistory)
    """Its resident memory over time, as far as it was received."""
    peaks: MemoryPeaks | None = None
    """The most memory that it held in each phase."""
    largest: LargestArrays | None = None
    """What held its memory when it had grown large; `None` while it has not."""
    snapshot: str = ""
    """The file with the snapshot of its device's memory, if that ran out."""
    process: ProcessUsage | None = None
    """What its process used lately; `None` until it is read."""
    gpu: GpuUsage | None = None
    """What its GPU did lately; `None` without a GPU, and until it is read."""
    energy: EnergyUsed | None = None
    """What its devices have used so far; `None` if that is not counted."""
    step: int | None = None
    """How many steps its training has done, if it can be resumed."""
    step_times: StepTimes | None = None
    """What its training steps have taken so far; `None` if nothing was measured."""
    bars: dict[int, Bar] = field(default_factory=dict)
    """Its progress bars, by their number, in the order in which they began."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The latest value of each. `JobState` sets them."""
    lines: deque[Line] = field(default_factory=deque)
    line_characters: int = 0
    """The characters of `lines` together."""
    written: int = 0
    """The number of lines of it that this process has received; `lines` holds the last of them."""
    failed: Failed | None = None
    returned: Returned | None = None
    exited: Exited | None = None
    is_saving: bool = False
    """Its training waits for a checkpoint to be saved."""
    interrupted: bool = False
    """It was sent SIGINT."""
    stopped: bool = False
    """It was sent SIGTERM or SIGKILL before its call ended."""
    node_leaving: bool = False
    """Its node shuts down."""

    def __repr__(self) -> str:
        does = f"{self.phase.value}, {self.doing}" if self.doing else self.phase.value
        process = [f"process {self.pid}"] if self.pid is not None else []
        memory = [size(self.resident)] if self.resident else []
        metrics = [f"{name} {value(each)}" for name, each in self.metrics.items()]
        return f"<Rank {self.rank}: {', '.join([does, *process, *memory, *metrics])}>"

    @property
    def answered(self) -> bool:
        """Whether the call has come to an end in this rank."""
        return self.failed is not None or self.returned is not None

    @property
    def is_reachable(self) -> bool:
        """Whether it has started, and has neither exited nor answered, so that it replies to requests."""
        return self.pid is not None and not (self.exited or self.answered)

    @property
    def is_importing(self) -> bool:
        """Whether it has imported a module for some time."""
        return bool(self.importing_since) and not self.phase.ended

    @property
    def doing(self) -> str:
        """What it does in its phase, of an import also how long: `import transformers, 12 s`."""
        if not self.is_importing:
            return self.detail
        return f"{self.detail}, {clock(max(0.0, time.time() - self.importing_since))}"

    @property
    def is_lost(self) -> bool:
        """Whether contact with its node was lost."""
        return self.exited is not None and bool(self.exited.lost)

    def apply(self, event: Event) -> None:
        """Applies one event."""
        if isinstance(event, Hello):
            self.pid, self.host, self.phase = event.pid, event.host, Phase.IDLE
        elif isinstance(event, PhaseChanged):
            self.phase, self.detail, self.importing_since = event.phase, event.detail, event.since
        elif isinstance(event, Saving):
            self.is_saving = event.is_on
        elif isinstance(event, Bar):
            self._keep_bar(event)
        elif isinstance(event, Lines):
            self._keep_lines(event)
        elif isinstance(event, Heartbeat):
            self.resident, self.device_used, self.device_total = event.resident, event.device_used, event.device_total
            self.step = event.step
            self.history.add(event.at, event.resident)
        elif isinstance(event, ResidentHistory):
            moments = (milliseconds / 1000 for milliseconds in event.moments)
            self.history = MemoryHistory(list(zip(moments, event.resident, strict=False)))
        elif isinstance(event, MemoryPeaks):
            self.peaks = event
        elif isinstance(event, LargestArrays):
            self.largest = event
        elif isinstance(event, SnapshotSaved):
            self.snapshot = event.path
        elif isinstance(event, ProcessUsage):
            self.process = event
        elif isinstance(event, GpuUsage):
            self.gpu = event
        elif isinstance(event, EnergyUsed):
            self.energy = event
        elif isinstance(event, StepTimes):
            self.step_times = event
        elif isinstance(event, Signalled):
            if event.signal == signal.SIGINT:
                self.interrupted = True
            else:
                self.stopped = self.stopped or not self.answered
        elif isinstance(event, NodeLeaving):
            self.node_leaving = True
        elif isinstance(event, Failed):
            phase = Phase.STOPPED if self.interrupted and _ended_by_interrupt(event) else Phase.FAILED
            self.failed, self.phase, self.detail, self.importing_since = event, phase, "", 0.0
            self.step = self.step if event.step is None else event.step
        elif isinstance(event, Returned):
            self.returned, self.phase, self.detail, self.importing_since = event, Phase.DONE, "", 0.0
        elif isinstance(event, Exited):
            self.exited = event
            if not self.answered:
                self.phase = Phase.STOPPED if self.stopped and not event.lost else Phase.FAILED

    def events(self) -> Iterator[Event]:
        """The shortest sequence of events whose fold equals this state, apart from its reports and output."""
        if self.pid is not None:
            yield Hello(self.pid, self.host)
        if self.history.points:
            moments, resident = zip(*self.history.points, strict=True)
            yield ResidentHistory([round(1000 * at) for at in moments], resident)
        if self.resident or self.device_used is not None or self.step is not None:
            yield Heartbeat(self.resident, self.device_used, self.device_total, self.step)
        measured = self.process, self.gpu, self.energy, self.step_times, self.peaks, self.largest
        yield from (event for event in measured if event is not None)
        if self.snapshot:
            yield SnapshotSaved(self.snapshot)
        yield from self.bars.values()
        if self.is_saving:
            yield Saving(True)
        if self.interrupted:
            yield Signalled(signal.SIGINT)
        if self.stopped:
            yield Signalled(signal.SIGTERM)
        if self.node_leaving:
            yield NodeLeaving()
        yield from (event for event in (self.failed, self.returned, self.exited) if event is not None)
        yield PhaseChanged(self.phase, self.detail, since=self.importing_since)

    def take(self, other: RankState) -> None:
        """Takes the state that is folded from the `events` of this rank; what these leave out stays."""
        vars(self).update((name, value) for name, value in vars(other).items() if name not in _NOT_AMONG_EVENTS)

    def _keep_lines(self, event: Lines) -> None:
        self.written += len(event.texts)
        last = event.texts[-MAX_LINES:]
        self.lines.extend(Line(event.stream, text) for text in last)
        self.line_characters += sum(map(len, last))
        while len(self.lines) > MAX_LINES or (self.line_characters > MAX_TEXT and len(self.lines) > 1):
            self.line_characters -= len(self.lines.popleft().text)

    def _keep_bar(self, bar: Bar) -> None:
        self.bars[bar.bar] = bar
        if bar.closed:
            if not bar.leave:
                del self.bars[bar.bar]
            closed = [number for number, each in self.bars.items() if each.closed]
            for number in closed[:-MAX_CLOSED_BARS]:
                del self.bars[number]


def _ended_by_interrupt(failed: Failed) -> bool:
    """Whether the interrupt is the reason why an interrupted call failed."""
    return failed.from_peer or any(raised.type_name == KeyboardInterrupt.__name__ for raised in failed.chain[-1:])


def _thinned(points: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """Half as many points at most. The longer ago, the more are merged into the largest of them; the last one stays."""
    now, span = points[-1][0], points[-1][0] - points[0][0] or 1.0
    merged: dict[int, tuple[float, int]] = {}
    for at, resident in points[:-1]:
        age = max(0.0, min(1.0, (now - at) / span))
        place = round((_MOST_POINTS // 2 - 2) * age ** (1 / 3))
        begun, most = merged.get(place, (at, 0))
        merged[place] = begun, max(most, resident)
    return [*merged.values(), points[-1]]
