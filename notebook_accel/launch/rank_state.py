"""What is known of one rank: the fold of its events."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from notebook_accel.events import (
    Bar,
    Event,
    Exited,
    Failed,
    Heartbeat,
    Hello,
    Line,
    Metrics,
    Phase,
    PhaseChanged,
    Returned,
)
from notebook_accel.launch.history import Point, Series

KEPT_LINES = 200
"""How many of a rank's last lines are kept."""
KEPT_BARS = 32
"""How many of a rank's closed bars are kept."""


@dataclass
class RankState:
    """What is known of one rank in the current attempt."""

    rank: int
    """Its global number."""
    phase: Phase = Phase.STARTING
    detail: str = ""
    pid: int | None = None
    host: str = ""
    resident: int = 0
    """Resident memory at its last heartbeat, in bytes."""
    device_used: int | None = None
    """Memory that it held on its device then, in bytes."""
    device_total: int | None = None
    bars: dict[int, Bar] = field(default_factory=dict)
    """Its progress bars, by their number, in the order in which they began."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The latest value of each."""
    history: dict[str, Series] = field(default_factory=dict)
    lines: deque[Line] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    failed: Failed | None = None
    returned: Returned | None = None
    exited: Exited | None = None
    stopped: bool = False
    """It was told to end, by a signal that leaves it no choice, before it had."""

    @property
    def answered(self) -> bool:
        """Whether the call has come to an end in this rank."""
        return self.failed is not None or self.returned is not None

    def apply(self, event: Event) -> None:
        """Takes in one event."""
        if isinstance(event, Hello):
            self.pid, self.host, self.phase = event.pid, event.host, Phase.IDLE
        elif isinstance(event, PhaseChanged):
            self.phase, self.detail = event.phase, event.detail
        elif isinstance(event, Bar):
            self._keep_bar(event)
        elif isinstance(event, Metrics):
            self._keep_metrics(event)
        elif isinstance(event, Line):
            self.lines.append(event)
        elif isinstance(event, Heartbeat):
            self.resident, self.device_used, self.device_total = event.resident, event.device_used, event.device_total
        elif isinstance(event, Failed):
            self.failed, self.phase = event, Phase.FAILED
        elif isinstance(event, Returned):
            self.returned, self.phase = event, Phase.DONE
        elif isinstance(event, Exited):
            self.exited = event
            if not self.answered:
                self.phase = Phase.STOPPED if self.stopped else Phase.FAILED

    def _keep_bar(self, bar: Bar) -> None:
        self.bars[bar.bar] = bar
        if bar.closed:
            if not bar.leave:
                del self.bars[bar.bar]
            closed = [number for number, each in self.bars.items() if each.closed]
            for number in closed[:-KEPT_BARS]:
                del self.bars[number]

    def _keep_metrics(self, metrics: Metrics) -> None:
        self.metrics.update(metrics.values)
        for name, value in metrics.values.items():
            if name not in self.history:
                self.history[name] = Series()
            self.history[name].add(Point(metrics.step, metrics.at, value))
