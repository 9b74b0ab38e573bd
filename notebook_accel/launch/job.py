"""One call on a group of ranks: the fold of its events, and the user's handle on it."""

from __future__ import annotations

import asyncio
import enum
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from notebook_accel.errors import JobCancelledError
from notebook_accel.events import (
    AttemptStarted,
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

KEPT_LINES = 200
"""How many of a rank's last lines are kept."""


class Status(str, enum.Enum):
    """What has become of a job. Only its runner moves it."""

    STARTING = "starting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"

    @property
    def ended(self) -> bool:
        return self not in (Status.STARTING, Status.RUNNING)


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
    bars: dict[int, Bar] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
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


class Job:
    """A launch: `wait` for it, ask for its `result`, `cancel` it, or `await` it."""

    def __init__(self, name: str, first: int, size: int) -> None:
        self.name = name
        """The launched function's."""
        self.attempt = 0
        self.status = Status.STARTING
        self.started = time.time()
        """Seconds since the epoch."""
        self.ended: float | None = None
        self._first = first
        self._size = size
        self._ranks = self._fresh_ranks()
        self._over = threading.Event()
        self._callbacks: list[Callable[[], object]] = []
        self._lock = threading.Lock()
        self._value: Any = None
        self._error: BaseException | None = None
        self._stop: Callable[[], object] = lambda: None

    # The user's handle

    @property
    def ranks(self) -> list[RankState]:
        """What is known of each rank, now."""
        return self._ranks

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return (self.ended or time.time()) - self.started

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the end, whatever it is, for at most `timeout` seconds. Returns whether it has come."""
        return self._over.wait(timeout)

    def result(self, timeout: float | None = None) -> Any:
        """Waits, and returns what each rank returned, by rank; `None` when all returned `None`.

        Raises:
            RankError: A rank failed.
            JobCancelledError: The job was cancelled.
            TimeoutError: The end has not come within `timeout` seconds. The job goes on.
        """
        if not self.wait(timeout):
            raise TimeoutError(f"{self.name}() is still {self.status.value} after {timeout} s; the job goes on")
        if self._error is not None:
            raise self._error
        return self._value

    def cancel(self) -> bool:
        """Asks the ranks to stop, as an interrupt does. Returns whether there was something left to stop."""
        if self._over.is_set():
            return False
        self._stop()
        return True

    def __await__(self) -> Generator[Any, None, Any]:
        return self._result_async().__await__()

    async def _result_async(self) -> Any:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            self._callbacks.append(lambda: loop.call_soon_threadsafe(over.set))
        if not self._over.is_set():
            await over.wait()
        return self.result()

    def __repr__(self) -> str:
        phases = ", ".join(f"{state.rank}: {state.phase.value}" for state in self._ranks[:16])
        return f"<Job {self.name}() {self.status.value}, {self.seconds:.1f} s, ranks {{{phases}}}>"

    # The fold

    def apply(self, rank: int | None, event: Event) -> None:
        """Takes in one event of a rank, by its number on this machine, or of the whole job (`None`)."""
        if isinstance(event, AttemptStarted):
            self.attempt = event.attempt
            self.status = Status.RUNNING
            self._ranks = self._fresh_ranks()
        elif rank is not None:
            _apply_to_rank(self._ranks[rank], event)

    def _fresh_ranks(self) -> list[RankState]:
        return [RankState(self._first + index) for index in range(self._size)]

    # The runner's side

    def on_cancel(self, stop: Callable[[], object]) -> None:
        """What `cancel` does."""
        self._stop = stop

    def finish(self, status: Status, value: Any = None, error: BaseException | None = None) -> None:
        """The end."""
        self.status, self._value, self._error = status, value, error
        if status is Status.CANCELLED:
            self._error = JobCancelledError(f"{self.name}() was cancelled after {self.seconds:.1f} s")
        self.ended = time.time()
        with self._lock:
            self._over.set()
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback()


def _apply_to_rank(state: RankState, event: Event) -> None:
    if isinstance(event, Hello):
        state.pid, state.host, state.phase = event.pid, event.host, Phase.IDLE
    elif isinstance(event, PhaseChanged):
        state.phase, state.detail = event.phase, event.detail
    elif isinstance(event, Bar):
        state.bars[event.bar] = event
    elif isinstance(event, Metrics):
        state.metrics.update(event.values)
    elif isinstance(event, Line):
        state.lines.append(event)
    elif isinstance(event, Heartbeat):
        state.resident = event.resident
    elif isinstance(event, Failed):
        state.failed, state.phase = event, Phase.FAILED
    elif isinstance(event, Returned):
        state.returned, state.phase = event, Phase.DONE
    elif isinstance(event, Exited):
        state.exited = event
        if not state.answered:
            state.phase = Phase.STOPPED if state.stopped else Phase.FAILED
