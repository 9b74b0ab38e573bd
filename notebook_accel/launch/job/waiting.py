"""Waits for what happens to a job: its end, a stall, or a value of a metric."""

from __future__ import annotations

import math
import operator
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.job import progress
from notebook_accel.launch.job.job_state import JobState
from notebook_accel.launch.job.text import value

ENDED, REACHED, STALLED, TIMEOUT = "ended", "reached", "stalled", "timeout"
"""How a wait ends."""
_INTERVAL = 0.1
"""Seconds between two looks at the job."""
_COMPARISONS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
_CONDITION = re.compile(r"\s*(.*?)\s*(<=|>=|<|>)\s*(\S+)\s*", re.DOTALL)


@dataclass(frozen=True)
class Condition:
    """A metric is beyond a limit, as in `loss < 0.1`."""

    metric: str
    sign: str
    limit: float

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Reads a condition.

        Raises:
            ConfigurationError: It is not one.
        """
        found = _CONDITION.fullmatch(text) if isinstance(text, str) else None
        try:
            condition = None if found is None else cls(found[1], found[2], float(found[3]))
        except ValueError:
            condition = None
        if condition is None or not condition.metric or math.isnan(condition.limit):
            raise ConfigurationError(
                f"until={text!r:.80} is not a condition: write the name of a metric, one of < <= > >=, and a number, "
                "as in 'loss < 0.1'"
            )
        return condition

    def reached(self, job: JobState) -> str:
        """`loss is 0.08 at step 120` if that holds for the metric's last value; otherwise empty.

        The value is the one that views show: the mean over ranks at the last step that they all have reported.
        """
        if self.metric not in progress.metric_names(job):
            return ""
        drawing = progress.metric(job, self.metric, 1)
        last = drawing.last
        if last is None or not _COMPARISONS[self.sign](last.mean, self.limit):
            return ""
        return f"{self.metric} is {value(last.mean)} at {'step' if drawing.by_step else 'report'} {last.last}"

    def missed(self, job: JobState) -> str:
        """Why it does not hold."""
        names = progress.metric_names(job)
        if self.metric not in names:
            reported = f"reported were {', '.join(names)}" if names else "nothing was reported"
            return f"{self.metric} was not reported; {reported}"
        last = progress.metric(job, self.metric, 1).last
        now = "has no value yet" if last is None else f"is {value(last.mean)}"
        return f"{self.metric} {now}, and not {self.sign} {value(self.limit)}"


@dataclass(frozen=True)
class Waited:
    """How a wait ended."""

    event: str
    """`ENDED`, `REACHED`, `STALLED`, or `TIMEOUT`."""
    text: str
    """The same as a clause, with the value of the metric: `loss is 0.08 at step 120`."""


def look(job: JobState, until: Condition | None) -> Waited | None:
    """What has happened to a job; `None` while nothing has."""
    reached = "" if until is None else until.reached(job)
    if reached:
        return Waited(REACHED, reached)
    if job.status.ended:
        return Waited(ENDED, _without(job, until, f"it has ended ({job.status.value})"))
    return None if job.stalled is None else Waited(STALLED, _without(job, until, "it is stalled"))


def wait(job: JobState, until: Condition | None, timeout: float, pause: Callable[[float], object]) -> Waited:
    """Waits until something happens.

    Args:
        job: The job.
        until: A condition, if one is awaited.
        timeout: Seconds to wait, at most.
        pause: Lets at most this many seconds pass, and brings the job up to date.
    """
    deadline = time.monotonic() + timeout
    while (found := look(job, until)) is None:
        left = deadline - time.monotonic()
        if left <= 0:
            return Waited(TIMEOUT, _without(job, until, "nothing has happened yet"))
        pause(min(_INTERVAL, left))
    return found


def _without(job: JobState, until: Condition | None, text: str) -> str:
    return text if until is None else f"{text}; {until.missed(job)}"
