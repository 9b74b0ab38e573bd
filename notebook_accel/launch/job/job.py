"""One call on a group of ranks: the fold of its events, and the user's handle on it."""

from __future__ import annotations

import concurrent.futures
import contextlib
import enum
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from notebook_accel.errors import JobCancelledError
from notebook_accel.events import AttemptStarted, Event, JobEnded, JobStarted, Phase, PhaseChanged, Stalled, StopAsked
from notebook_accel.launch.job import history
from notebook_accel.launch.job import text as wording
from notebook_accel.launch.job.rank_state import RankState

if TYPE_CHECKING:
    from pandas import DataFrame

    from notebook_accel.launch.job.stacks import JobStacks, StacksByRank


_LONGEST_ERROR = 80_000
"""Characters of an error's text that are told."""

Hearer = Callable[[int | None, Event], object]


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


def no_stacks(then: Callable[[StacksByRank], object]) -> None:
    """What `Runner.request_stacks` is while no rank can be asked."""
    then({})


@dataclass
class Runner:
    """What the user's handle on a job needs of whoever runs it. The runner sets the fields that it answers for."""

    cancel: Callable[[], object] = lambda: None
    """Asks the ranks to stop."""
    show: Callable[[], object] = lambda: None
    """Shows the job below the current cell."""
    request_stacks: Callable[[Callable[[StacksByRank], object]], object] = no_stacks
    """Calls back, on any thread, with the stacks of the ranks."""
    values: Callable[[], Any] | None = None
    """Fetches what the ranks returned, where `Job.finish` is not given it."""


class Job:
    """A launch: `wait` for it, ask for its `result`, `show` it, `cancel` it, or `await` it."""

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
    ) -> None:
        self._hearers: list[Hearer] = []
        self._take(
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
            )
        )
        self.blocking = False
        """A cell waits for it, so that an interrupt of the kernel is meant for it."""
        self.elsewhere = False
        """Another process than this one runs it, which goes on when this one ends."""
        self._over = threading.Event()
        self._callbacks: list[Callable[[], object]] = []
        self._lock = threading.Lock()
        self._value: Any = None
        self._error: BaseException | None = None
        self.runner = Runner()

    def _take(self, start: JobStarted) -> None:
        """Begins, or begins anew."""
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

    # The user's handle

    @property
    def title(self) -> str:
        """What the user calls it: `train()`, or `In[3]` for a cell, `train.py` or `-m train` for a script."""
        return wording.title(self.name)

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
        self.runner.show()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the end, whatever it is, for at most `timeout` seconds. Returns whether it has come."""
        return self._over.wait(timeout)

    def result(self, timeout: float | None = None) -> Any:
        """Waits, and returns what each rank returned, by rank; `None` when all returned `None`.

        Raises:
            RankError: A rank failed.
            JobCancelledError: The job was cancelled.
            JobLostError: The job ran elsewhere, and its values are not to be had here.
            TimeoutError: The end has not come within `timeout` seconds. The job goes on.
        """
        if not self.wait(timeout):
            raise TimeoutError(f"{self.title} is still {self.status.value} after {timeout} s; the job goes on")
        if self._error is not None:
            raise self._error
        return self._value if self.runner.values is None else self.runner.values()

    def cancel(self) -> bool:
        """Asks the ranks to stop, as an interrupt does. Returns whether there was something left to stop."""
        if self._over.is_set():
            return False
        self.runner.cancel()
        return True

    def stacks(self, timeout: float = 5.0) -> JobStacks:
        """Where each rank is now: the Python stack of each of its threads. The ranks are not disturbed.

        Of a rank that is in C code which lets no Python run, the stack is seen from outside. A rank that does not tell
        its own within `timeout` seconds has none in the answer; of a job that another process runs, neither do its
        ranks if that process does not answer.
        """
        from notebook_accel.launch.job import location, stacks

        answer: concurrent.futures.Future[StacksByRank] = concurrent.futures.Future()
        self.runner.request_stacks(answer.set_result)
        told: StacksByRank = {}
        with contextlib.suppress(concurrent.futures.TimeoutError):
            told = answer.result(timeout)
        if not told and self._over.is_set():
            note = f"{self.title} has ended ({self.status.value}): its ranks are nowhere any more"
            return stacks.JobStacks((), {}, note)
        where = [location.of(state, told.get(index, ())) for index, state in enumerate(self._ranks)]
        return stacks.JobStacks(where, {self._ranks[index].rank: threads for index, threads in told.items()})

    def __await__(self) -> Generator[Any, None, Any]:
        return self._result_async().__await__()

    async def _result_async(self) -> Any:
        import asyncio  # here, because it takes a tenth of the package's import, and is rarely needed

        loop, over = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            self._callbacks.append(lambda: loop.call_soon_threadsafe(over.set))
        if not self._over.is_set():
            await over.wait()
        return self.result()

    def __repr__(self) -> str:
        phases = ", ".join(f"{state.rank}: {state.phase.value}" for state in self._ranks[:16])
        return f"<Job {self.id}: {self.title} {self.status.value}, {self.seconds:.1f} s, ranks {{{phases}}}>"

    # The fold

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
        elif isinstance(event, StopAsked):
            self.stopping = event.times
        elif isinstance(event, JobEnded):
            self.outcome, self.status, self.ended = event, Status(event.status), event.at
            if self.status is Status.LOST:
                self._lose_ranks()
        for hear in self._hearers:
            hear(rank, event)

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
            yield None, StopAsked(self.stopping)
        if self.outcome is not None:
            yield None, self.outcome

    def listen(self, hear: Hearer) -> None:
        """Has `hear(rank, event)` called for each event from now on, once the job has taken it in."""
        self._hearers.append(hear)

    def _lose_ranks(self) -> None:
        """Ranks end with the process that has launched them."""
        for state in self._ranks:
            if not state.phase.ended:
                state.apply(PhaseChanged(Phase.STOPPED))

    def _fresh_ranks(self) -> list[RankState]:
        return [RankState(self._start.first + index) for index in range(self._start.size)]

    # The runner's side

    def finish(self, status: Status, value: Any = None, error: BaseException | None = None) -> None:
        """The end."""
        at = time.time()
        if status is Status.CANCELLED:
            error = JobCancelledError(f"{self.title} was cancelled after {at - self.started:.1f} s")
        self._value, self._error = value, error
        text, error_type = ("", "") if error is None else (str(error)[:_LONGEST_ERROR], type(error).__name__)
        self.apply(None, JobEnded(status.value, at, text, error_type))
        self.settle()

    def settle(self) -> None:
        """Lets go on whoever waits for the end, which has been applied."""
        with self._lock:
            self._over.set()
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback()
