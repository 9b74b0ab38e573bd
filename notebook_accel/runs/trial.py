"""`Trial`: one launch of a sweep, while it waits, runs, and once it has ended."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from notebook_accel.errors import JobLostError
from notebook_accel.events.rules import STOP
from notebook_accel.insight import comparison
from notebook_accel.launch.driver import attach
from notebook_accel.launch.job import progress, rules, text
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.plan import run_facts

_MOST_CHARACTERS = 30
"""Characters of a parameter on the board."""


class State(str, enum.Enum):
    """What a trial does."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped early"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self not in (State.WAITING, State.RUNNING)

    @property
    def counts(self) -> bool:
        """Whether its values compare with those of others."""
        return self in (State.DONE, State.STOPPED)


class Measured(NamedTuple):
    """A metric of one trial, as the mean of the ranks that reported it."""

    last: float
    step: int | None
    """The step of the last value."""
    least: float
    """The least finite value; NaN if there is none."""
    most: float


@dataclass(eq=False, repr=False)
class Trial:
    """One launch of a sweep."""

    number: int
    """Its place in the sweep, from 0."""
    parameters: dict[str, Any]
    """What the function was called with, by name."""
    state: State = State.WAITING
    why: str = ""
    """Why it failed, or was stopped; empty otherwise."""
    seconds: float = 0.0
    """How long it ran, once it has ended."""
    measured: dict[str, Measured] = field(default_factory=dict)
    """Its metrics, once it has ended."""
    job_id: str = ""
    """The ID of its job."""
    error: BaseException | None = None
    """What its launch raised, in this kernel."""
    running_job: Job | None = None
    value: Any = None
    value_lost: str = ""
    """Why what it returned is not available; empty if it is."""

    def __repr__(self) -> str:
        values = [f"{name} {text.value(value)}" for name, value in self.metrics.items()]
        return f"<Trial {self.number}: {', '.join([self.label, self.state.value, *values])}>"

    @property
    def label(self) -> str:
        """Its parameters in a line: `lr=0.001 wd=0.1`."""
        return in_words(self.parameters)

    @property
    def job(self) -> Job:
        """Its job, as `attach` finds it.

        Raises:
            JobLostError: It has not begun, or is no longer recorded.
        """
        if self.running_job is not None:
            return self.running_job
        if not self.job_id:
            raise JobLostError(f"trial {self.number} has not begun, so it has no job")
        return attach.find(self.job_id)

    @property
    def metrics(self) -> dict[str, float]:
        """The last value of each metric that it has reported."""
        return {name: each.last for name, each in self.measure().items()}

    def measure(self) -> dict[str, Measured]:
        """Its metrics as they are now."""
        if self.state is State.RUNNING and self.running_job is not None:
            return measure(self.running_job)
        return self.measured

    def result(self) -> Any:
        """What its launch returned: a list with the value of each rank, or `None`.

        Raises:
            JobLostError: It has not returned, or what it returned is not available.
            RankError: A rank failed.
        """
        if self.error is not None:
            raise self.error
        if self.state is not State.DONE:
            raise JobLostError(f"trial {self.number} is {self.state.value}, so it has returned nothing")
        if self.value_lost:
            raise JobLostError(f"trial {self.number} is done, but its result is not available: {self.value_lost}")
        return self.value

    def take_end(self) -> None:
        """Takes what its job, which has ended, has come to."""
        job = self.running_job
        assert job is not None
        job.wait()
        self.seconds = job.seconds
        try:
            self.measured = measure(job)
        except JobLostError as lost:
            self.value_lost = str(lost)
        if job.status is Status.DONE:
            self.state, self.why = State.DONE, ""
            try:
                self.value = job.result()
            except Exception as error:  # a class that this kernel doesn't define, for instance
                self.value_lost = f"{type(error).__name__}: {error}"
            return
        if job.status is Status.FAILED:
            self.state = State.FAILED
            try:
                job.result()
            except Exception as error:
                self.error = error
            failed = progress.failed(job)
            self.why = (progress.why_failed(failed[0]) if failed else "") or str(self.error).split("\n", 1)[0]
            return
        self.why = self.why or rules.met(job, STOP)
        self.state = State.STOPPED if self.why else State.CANCELLED


def in_words(parameters: Mapping[str, Any]) -> str:
    """Parameters in a line: `lr=0.001 wd=0.1`."""
    return " ".join(f"{name}={shown(value)}" for name, value in parameters.items())


def shown(value: Any) -> str:
    """A parameter as the board shows it; the data frame has its exact value."""
    if isinstance(value, (bool, int, str, type(None))):
        words = str(value)
    elif isinstance(value, float):
        words = text.value(value)
    else:
        words = str(getattr(value, "__name__", "")) or run_facts.short(value)
    return text.shortened(" ".join(words.split()), _MOST_CHARACTERS)


def measure(job: Job) -> dict[str, Measured]:
    """The metrics of a job as they are now.

    Raises:
        JobLostError: The reports were in a file that is gone.
    """
    found = {}
    for name, curve in comparison.curves(job).items():
        step, last = max(curve.means.items())
        finite = [value for value in curve.means.values() if math.isfinite(value)]
        best = min(finite, default=math.nan), max(finite, default=math.nan)
        found[name] = Measured(last, step if curve.by_step else None, *best)
    return found
