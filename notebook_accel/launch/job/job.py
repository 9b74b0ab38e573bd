"""The user's handle on one call on a group of ranks: its state, and requests to the process that runs it."""

from __future__ import annotations

import concurrent.futures
import contextlib
import numbers
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from notebook_accel.errors import ConfigurationError, JobCancelledError
from notebook_accel.events import JobEnded, JobStarted
from notebook_accel.launch.job import advice, anatomy
from notebook_accel.launch.job.controls.controlled_job import ControlledJob
from notebook_accel.launch.job.controls.short_errors import short_errors
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.metrics import report_log

if TYPE_CHECKING:
    from pandas import DataFrame

    from notebook_accel.launch.job.collectives import last_collectives
    from notebook_accel.launch.job.flamegraphs.flamegraph import Flamegraph
    from notebook_accel.launch.job.profiles.job_profile import JobProfile
    from notebook_accel.launch.job.rank_requests import RankRequest, Replies, RequestRanks
    from notebook_accel.launch.job.stacks import JobStacks, StacksByRank


_MAX_ERROR = 80_000
"""Characters of an error's text that the event `JobEnded` carries."""
_WAKEUP = 0.5
"""Seconds between two wakeups of an event loop in which the job is awaited: an interrupt of ipykernel's cancels what a
cell awaits, but does not wake the loop, so that it would take effect when the job ends."""


def no_stacks(then: Callable[[StacksByRank], object]) -> None:
    """The value of `Runner.request_stacks` while no rank can answer."""
    then({})


def no_replies(request: RankRequest, then: Callable[[Replies], object]) -> None:
    """The value of `Runner.request_ranks` while no rank can answer."""
    then({})


@dataclass
class Runner:
    """What `Job` needs of the code that runs it, which sets these fields for the jobs that it runs."""

    cancel: Callable[[], object] = lambda: None
    """Requests that the ranks stop."""
    show: Callable[[], object] = lambda: None
    """Shows the job below the current cell."""
    outputs: Callable[[], Sequence[Mapping[str, Any]]] = tuple
    """What the ranks have written and displayed below the job's first view, as outputs of the notebook format. That
    view takes this away, since none of it is below another one."""
    forget_outputs: Callable[[], object] = lambda: None
    """Frees what `outputs` returns, once the views have been drawn for the last time."""
    request_stacks: Callable[[Callable[[StacksByRank], object]], object] = no_stacks
    """Calls back, on any thread, with the stacks of the ranks."""
    request_ranks: RequestRanks = no_replies
    """Asks the ranks for something else, and calls back, on any thread, with their replies."""
    shorten_traceback: Callable[[BaseException], object] = lambda error: None
    """Makes an exception show without the frames of this package."""
    values: Callable[[], Any] | None = None
    """Fetches what the ranks returned, for jobs whose `finish` is not given the values."""


class Job(ControlledJob):
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
        versions: str = "",
        checkpoint_dir: str = "",
    ) -> None:
        super().__init__(
            JobStarted(
                id=os.urandom(3).hex(),
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
                versions=versions,
                checkpoint_dir=checkpoint_dir,
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
        self.runner = Runner()

    # The user's handle

    @property
    def metrics(self) -> DataFrame | list[dict[str, float | int | None]]:
        """Every report so far, one row each: `rank`, `step`, `seconds` since the job began, and the values by name.

        The rows are ordered by rank, and those of a rank in the order in which it reported. If the job was started
        again after a failure, the column `attempt` tells the attempts apart, from 0. A DataFrame if pandas is
        installed, otherwise a list of dicts.

        Raises:
            JobLostError: The reports were too many for memory, and their file is gone.
        """
        return report_log.table(self.report_log.read(), self._start.first, self.started)

    @property
    def anatomy(self) -> DataFrame | list[anatomy.Row]:
        """What a training step takes so far, one row for each rank that trains with prepared objects.

        `seconds` is the mean of a step, and `data`, `copy`, `forward`, `backward`, `sync`, `optimizer` and `rest` are
        its parts; with `_share` after the name, as a fraction of the step. `samples_per_second` is missing if batches
        have no fixed size. The first step is left out. A DataFrame if pandas is installed, otherwise a list of dicts.
        """
        rows = anatomy.rows((state.rank, state.step_times) for state in self._ranks)
        try:
            import pandas as pd
        except ImportError:
            return rows
        return pd.DataFrame(rows, columns=anatomy.columns())

    @property
    def advice(self) -> list[str]:
        """What would make training faster: sentences with their evidence. Empty if nothing seems wrong."""
        return advice.advice({state.rank: state.step_times for state in self._ranks if state.step_times is not None})

    def log(self, rank: int | None = None, last: int | None = 1000) -> str:
        """The last lines that the ranks have written, in the order of arrival, without colors.

        They come from the job's journal, also if another process runs the job or it has ended. The journal has up to
        128 MB of lines.

        Args:
            rank: The global rank. Defaults to all ranks of the job, whose lines are then labeled: `[3] loss 0.2`.
            last: The number of lines; `None` for all.

        Raises:
            ConfigurationError: An argument is out of range.
            JobLostError: The lines can't be read, for example because the job's journal has been removed.
        """
        from notebook_accel.launch.job.logs import log_text

        return log_text.last_lines(self.output_log, [state.rank for state in self._ranks], rank, last)

    def show(self) -> None:
        """Shows the job below the current cell, updated while it runs; afterwards, in its last state."""
        self.runner.show()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the job to end in any way, for at most `timeout` seconds. Returns whether it has ended.

        Raises:
            ConfigurationError: `timeout` is not a number of seconds.
            KeyboardInterrupt: The wait was interrupted. The job keeps running.
        """
        try:
            return self._over.wait(None if timeout is None else _checked_seconds(timeout, " or None"))
        except KeyboardInterrupt:
            error = KeyboardInterrupt(
                f"the wait for {self.title} was interrupted; the job keeps running: cancel() ends it"
            )
            self._shorten_traceback(error)
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
            error = TimeoutError(f"{self.title} is still {self.status.value} after {timeout} s; the job keeps running")
            self._shorten_traceback(error)
            raise error
        if self._error is not None:
            raise self._error
        return self._value if self.runner.values is None else self.runner.values()

    def cancel(self) -> bool:
        """Requests that the ranks stop, as an interrupt does. Returns whether the job was still running."""
        if self._over.is_set():
            return False
        self.runner.cancel()
        return True

    def stacks(self, timeout: float = 5.0) -> JobStacks:
        """Returns the current Python stack of each thread of each rank, without disturbing the ranks.

        If a rank is in C code that holds the GIL, its stacks are read from outside. A rank that does not report its
        stacks within `timeout` seconds has none in the result; the same is true of all ranks if another process runs
        the job and does not answer.

        Raises:
            ConfigurationError: `timeout` is not a number of seconds.
        """
        from notebook_accel.launch.job import location, stacks

        timeout = _checked_seconds(timeout)
        answer: concurrent.futures.Future[StacksByRank] = concurrent.futures.Future()
        self.runner.request_stacks(answer.set_result)
        stacks_by_rank: StacksByRank = {}
        with contextlib.suppress(concurrent.futures.TimeoutError):
            stacks_by_rank = answer.result(timeout)
        if not stacks_by_rank and self._over.is_set():
            note = f"{self.title} has ended ({self.status.value}), so its ranks have no stacks"
            return stacks.JobStacks((), {}, note)
        where = [location.of(state, stacks_by_rank.get(index, ())) for index, state in enumerate(self._ranks)]
        return stacks.JobStacks(where, {self._ranks[index].rank: threads for index, threads in stacks_by_rank.items()})

    @short_errors
    def flamegraph(self, seconds: float = 5.0, rank: int | None = None, *, rate: float = 100.0) -> Flamegraph:
        """Samples where the ranks spend their time in Python, and returns it as a flame graph.

        The job keeps running, and needs no preparation. A call into C code, such as an operation of torch, counts for
        the line that makes the call. If the call ends while it is sampled, the flame graph has what came before.

        Args:
            seconds: How long to sample, at most 600.
            rank: The global rank to sample. Defaults to all ranks of the job.
            rate: Samples per second, at most 1,000.

        Raises:
            ConfigurationError: An argument is out of range, or the job has no such rank.
            JobEndedError: The job has ended.
            TimeoutError: No rank has reported samples.
        """
        from notebook_accel.launch.job.flamegraphs import sampling

        return sampling.sample(self, self._request_ranks, seconds, rank, rate)

    @short_errors
    def profile(self, steps: int = 5, rank: int | None = None, *, timeout: float = 60.0) -> JobProfile:
        """Profiles the next training steps with torch's profiler, and returns what they spend their time on.

        The job keeps running, and needs no preparation. A step ends when an optimizer of torch has stepped. Each rank
        begins at the end of the step that it is in. If its function ends first, the profile has the steps before.

        Args:
            steps: How many steps to profile, at most 1,000. A trace of more than 32 MB loses its shortest events.
            rank: The global rank to profile. Defaults to all ranks of the job.
            timeout: Seconds within which the steps have to end, at most 3,600.

        Raises:
            ConfigurationError: An argument is out of range, or the job has no such rank.
            JobEndedError: The job has ended.
            TimeoutError: No rank has sent a trace, for example because no step ended in time, or because another
                profiler of torch is active there; the message says which.
        """
        from notebook_accel.launch.job.profiles import profile_request

        return profile_request.profile(self, self._request_ranks, steps, rank, timeout)

    @short_errors
    def collectives(self, rank: int | None = None) -> DataFrame | list[last_collectives.Row]:
        """The last 100 collectives that each rank has begun, one row each, the oldest of a rank first.

        The columns are `rank`, `group` (the process group), `number` (in the group; the same on all its ranks),
        `operation`, `shapes` and `bytes` (of what the rank gives), `began` (seconds since the job began), `seconds`
        (missing with gloo, and while it runs), and `done`. A DataFrame if pandas is installed, otherwise a list of
        dicts.

        Args:
            rank: The global rank. Defaults to all ranks of the job.

        Raises:
            ConfigurationError: The job has no such rank.
            JobEndedError: The job has ended.
            TimeoutError: No rank has replied, or torch records no collectives there; the message says which.
        """
        from notebook_accel.launch.job.collectives import last_collectives

        return last_collectives.table(self, self._request_ranks, rank)

    def _request_ranks(self, request: RankRequest, then: Callable[[Replies], object]) -> None:
        self.runner.request_ranks(request, then)  # that of now, which differs once the ranks have started

    def _shorten_traceback(self, error: BaseException) -> None:
        self.runner.shorten_traceback(error)

    def __await__(self) -> Generator[Any, None, Any]:
        return self._result_async().__await__()

    async def _result_async(self) -> Any:
        import asyncio  # here, because it takes a tenth of the package's import, and is rarely needed

        loop, over = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            self._callbacks.append(lambda: loop.call_soon_threadsafe(over.set))
        try:
            while not self._over.is_set():
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(over.wait(), _WAKEUP)
        except asyncio.CancelledError:
            error = asyncio.CancelledError(
                f"the wait for {self.title} was cancelled; the job keeps running: cancel() ends it"
            )
            self._shorten_traceback(error)
            raise error from None
        return self.result()

    def __repr__(self) -> str:
        phases = ", ".join(f"{state.rank}: {state.phase.value}" for state in self._ranks[:16])
        return f"<Job {self.id}: {self.title} {self.status.value}, {self.seconds:.1f} s, ranks {{{phases}}}>"

    # The runner's side

    def finish(self, status: Status, value: Any = None, error: BaseException | None = None) -> None:
        """Ends the job: applies `JobEnded`, and wakes everything that waits for it."""
        at = time.time()
        if status is Status.CANCELLED:
            error = JobCancelledError(f"{self.title} was cancelled after {at - self.started:.1f} s")
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


def _checked_seconds(timeout: object, or_what: str = "") -> float:
    """A number of seconds to wait, at most as long as a thread can."""
    if isinstance(timeout, bool) or not isinstance(timeout, numbers.Real) or timeout != timeout:
        raise ConfigurationError(f"timeout must be a number of seconds{or_what}, not {timeout!r:.80}")
    return float(timeout) if timeout < threading.TIMEOUT_MAX else threading.TIMEOUT_MAX
