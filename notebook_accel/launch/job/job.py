"""The user's handle on one call on a group of ranks: its state, and requests to the process that runs it."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from notebook_accel.errors import JobCancelledError
from notebook_accel.events import JobEnded, JobStarted
from notebook_accel.events.rules import STOP
from notebook_accel.insight.inspected_job import InspectedJob
from notebook_accel.launch.job import progress, requests, rules, waiting
from notebook_accel.launch.job.controls import ControlledJob, PauseNotices
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.rules import RuledJob

_MAX_ERROR = 80_000
"""Characters of an error's text that the event `JobEnded` carries."""
_WAKEUP = 0.5
"""Seconds between two wakeups of a wait, which then looks whether the job is paused. An event loop needs them, too: an
interrupt of ipykernel's cancels what a cell awaits, but does not wake the loop, so that it would take effect when the
job ends."""


class Job(ControlledJob, RuledJob, InspectedJob):
    """A launch: `wait` for it, get its `result`, `show` it, `cancel` it, or `await` it."""

    def __init__(
        self,
        name: str,
        first: int,
        size: int,
        hardware: str = "",
        *,
        world_size: int | None = None,
        local_size: int = 0,
        label: str | None = None,
        notice: str = "",
        devices: Sequence[str] = (),
        title: str = "",
        notes: str = "",
        call: str = "",
        arguments: Mapping[str, str] | None = None,
        versions: str = "",
        checkpoint_dir: str = "",
        part_of: str = "",
        co2_per_kwh: float | None = None,
    ) -> None:
        super().__init__(
            JobStarted(
                id=os.urandom(6).hex(),  # no two of a thousand jobs may have the same
                name=name,
                first=first,
                size=size,
                world_size=world_size or size,
                hardware=hardware,
                label=label,
                at=time.time(),
                local_size=local_size,
                notice=notice,
                devices=devices,
                title=title,
                notes=notes,
                call=call,
                arguments=arguments or {},
                versions=versions,
                checkpoint_dir=checkpoint_dir,
                part_of=part_of,
                co2_per_kwh=co2_per_kwh,
            )
        )
        self.blocking = False
        """Whether a cell waits for the job, so that an interrupt of the kernel is meant for the job."""
        self.elsewhere = False
        """Whether another process runs the job, so that it continues when this process ends."""
        self._over = threading.Event()
        self._callbacks: list[Callable[[], object]] = []
        self._lock = threading.Lock()
        self._value: Any = None
        self._error: BaseException | None = None

    # The user's handle

    def show(self) -> None:
        """Shows the job below the current cell, updated while it runs; afterwards, in its last state."""
        self.runner.show()

    def wait(self, timeout: float | None = None, *, until: str | None = None) -> bool:
        """Waits for the job to end in any way, or for a value of a metric. Returns whether that has happened.

        Args:
            timeout: Seconds to wait, at most.
            until: A metric and a limit, such as `"loss < 0.1"`. The metric is the mean over the ranks at a step that
                they all have reported, as views show it: the last such step, or a later one. The wait also
                ends if the job ends or stalls, since the metric doesn't change then.

        Raises:
            ConfigurationError: `timeout` is not a number of seconds, or `until` not a condition.
            KeyboardInterrupt: The wait was interrupted. The job keeps running.
        """
        seconds = None if timeout is None else requests.checked_timeout(timeout, "a number of seconds or None")
        condition = None if until is None else waiting.Condition.parse(until)
        pauses = PauseNotices(self)

        def rest(most: float) -> bool:
            pauses.look()
            return self._over.wait(min(_WAKEUP, most))

        try:
            if condition is None:
                deadline = time.monotonic() + (math.inf if seconds is None else seconds)
                while not rest(max(0.0, deadline - time.monotonic())):
                    if time.monotonic() >= deadline:
                        return False
                return True
            with contextlib.closing(waiting.Wait(self, condition)) as wait:
                found = wait.until(math.inf if seconds is None else seconds, rest)
            return found.event == waiting.REACHED
        except KeyboardInterrupt:
            error = KeyboardInterrupt(
                f"the wait for {self.title} was interrupted; the job keeps running: cancel() ends it"
            )
            self.runner.shorten_traceback(error)
            raise error from None

    def result(self, timeout: float | None = None) -> Any:
        """Waits, and returns the values of all ranks, in order; `None` if all returned `None`.

        Raises:
            ConfigurationError: `timeout` is not a number of seconds.
            RankError: A rank failed.
            JobCancelledError: The job was cancelled.
            JobLostError: The job ran elsewhere, and its values are not available here.
            TimeoutError: The job has not ended within `timeout` seconds. It keeps running.
        """
        if not self.wait(timeout):
            error = TimeoutError(
                f"{self.title} is still {progress.status(self)} after {timeout} s; the job keeps running"
            )
            self.runner.shorten_traceback(error)
            raise error
        if self._error is not None:
            raise self._error
        return self._value if self.runner.values is None else self.runner.values()

    def cancel(self) -> bool:
        """Requests that the ranks stop, as an interrupt does. Returns whether the job was still running."""
        if self.status.ended:
            return False
        self.runner.cancel()
        return True

    def __await__(self) -> Generator[Any, None, Any]:
        return self._result_async().__await__()

    async def _result_async(self) -> Any:
        import asyncio  # here, because it takes a tenth of the package's import, and is rarely needed

        loop, over, pauses = asyncio.get_running_loop(), asyncio.Event(), PauseNotices(self)
        with self._lock:
            self._callbacks.append(lambda: loop.call_soon_threadsafe(over.set))
        try:
            while not self._over.is_set():
                pauses.look()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(over.wait(), _WAKEUP)
        except asyncio.CancelledError:
            error = asyncio.CancelledError(
                f"the wait for {self.title} was cancelled; the job keeps running: cancel() ends it"
            )
            self.runner.shorten_traceback(error)
            raise error from None
        return self.result()

    def __repr__(self) -> str:
        phases = ", ".join(f"{state.rank}: {state.phase.value}" for state in self._ranks[:16])
        return f"<Job {self.id}: {self.title} {progress.status(self)}, {self.seconds:.1f} s, ranks {{{phases}}}>"

    # The runner's side

    def finish(self, status: Status, value: Any = None, error: BaseException | None = None) -> None:
        """Ends the job: applies `JobEnded`, and wakes everything that waits for it."""
        at = time.time()
        if status is Status.CANCELLED:
            rule = rules.met(self, STOP)
            how = "stopped by its rule" if rule else "cancelled"
            why = f": {rule}" if rule else ""
            error = JobCancelledError(f"{self.title} was {how} after {at - self.started:.1f} s{why}")
        self._value, self._error = value, error
        text, error_type = ("", "") if error is None else (str(error)[:_MAX_ERROR], type(error).__name__)
        self.apply(None, JobEnded(status.value, at, text, error_type))
        self.settle()

    def settle(self) -> None:
        """Wakes everything that waits for the end; `JobEnded` has been applied."""
        with self._lock:
            self._over.set()
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback()
