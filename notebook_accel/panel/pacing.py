"""When a view of a job is redrawn: as often as its thread and its receiver can take, and at once for what is urgent."""

from __future__ import annotations

import time
from types import TracebackType

from notebook_accel.events import AttemptStarted, Event, Exited, Failed, InputRequested, Phase
from notebook_accel.launch.job.job import Job

SHARE = 0.04
"""The largest share of the drawing thread's time that drawing may take."""
_LONGEST_PAUSE = 1.0
"""The longest pause, in seconds, to let a receiver catch up. A longer one would delay updates too much."""


class Pacer:
    """Paces an operation: `if pacer.is_due(): with pacer: ...` runs it less often if it takes long or sends much.

    Args:
        interval: The shortest time between two runs, in seconds.
        share: The largest share of the thread's time that the operation may take.
        rate: The bytes a second that the receiver can take.
    """

    def __init__(self, interval: float, share: float = SHARE, rate: float = float("inf")) -> None:
        self._interval = interval
        self._share = share
        self._rate = rate
        self._due = 0.0
        self._began = 0.0
        self._sent = 0

    def is_due(self) -> bool:
        """Whether enough time has passed since the last run; true before the first."""
        return time.monotonic() >= self._due

    def sent(self, count: int) -> None:
        """Counts sent bytes: the next run waits for as long as they take at `rate` bytes a second."""
        self._sent += count

    def __enter__(self) -> None:
        self._began, self._sent = time.thread_time(), 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        elapsed = time.thread_time() - self._began
        pause = min(_LONGEST_PAUSE, self._sent / self._rate)
        self._due = time.monotonic() + max(self._interval, elapsed / self._share, pause)


class JobPacer(Pacer):
    """Paces the drawing of a job, which is also due when something urgent has happened that was not drawn yet.

    Urgent are requests for input, and the first failure in each attempt. The failures that it causes can wait.
    """

    def __init__(self, job: Job, interval: float, share: float = SHARE, rate: float = float("inf")) -> None:
        super().__init__(interval, share, rate)
        self._job = job
        self._has_failed = False
        self._is_urgent = False
        job.listen(self._on_event)

    def is_due(self) -> bool:
        return self._is_urgent or super().is_due()

    def __enter__(self) -> None:
        self._is_urgent = False
        super().__enter__()

    def _on_event(self, rank: int | None, event: Event) -> None:
        if isinstance(event, (Failed, Exited)):
            if not self._has_failed and rank is not None and self._job.ranks[rank].phase is Phase.FAILED:
                self._has_failed = self._is_urgent = True
        elif isinstance(event, InputRequested):
            self._is_urgent = True
        elif isinstance(event, AttemptStarted):
            self._has_failed = self._is_urgent = False
