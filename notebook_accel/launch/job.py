"""One call on a group of ranks: the fold of its events, and the user's handle on it."""

from __future__ import annotations

import asyncio
import enum
import threading
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from notebook_accel.errors import JobCancelledError
from notebook_accel.events import AttemptStarted, Event
from notebook_accel.launch import frontend, history
from notebook_accel.launch.rank_state import RankState

if TYPE_CHECKING:
    from pandas import DataFrame


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


class Job:
    """A launch: `wait` for it, ask for its `result`, `show` it, `cancel` it, or `await` it."""

    def __init__(self, name: str, first: int, size: int, hardware: str = "") -> None:
        self.name = name
        """The launched function's."""
        self.hardware = hardware
        """What its ranks run on, in words."""
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
        self._open_view: Callable[[], object] = lambda: frontend.current.show(self)

    # The user's handle

    @property
    def ranks(self) -> list[RankState]:
        """What is known of each rank, now."""
        return self._ranks

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return (self.ended or time.time()) - self.started

    @property
    def metrics(self) -> DataFrame | list[dict[str, float | int | None]]:
        """What the ranks have logged so far, a row for each time: `rank`, `step`, `seconds`, and the metrics by name.

        A DataFrame where pandas is installed, else a list of dicts. Of each metric and rank 512 points are kept, evenly
        over the run, and the last.
        """
        rows = history.rows(((state.rank, state.history) for state in self._ranks), self.started)
        try:
            import pandas as pd
        except ImportError:
            return rows
        return pd.DataFrame(rows, columns=None if rows else ["rank", "step", "seconds"])

    def show(self) -> None:
        """Shows the job below the current cell: while it runs, from now on; afterwards, what remains of it."""
        self._open_view()

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
            self._ranks[rank].apply(event)

    def _fresh_ranks(self) -> list[RankState]:
        return [RankState(self._first + index) for index in range(self._size)]

    # The runner's side

    def on_cancel(self, stop: Callable[[], object]) -> None:
        """What `cancel` does."""
        self._stop = stop

    def on_show(self, open_view: Callable[[], object]) -> None:
        """What `show` does."""
        self._open_view = open_view

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
