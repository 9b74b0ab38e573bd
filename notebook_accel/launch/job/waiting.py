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
from notebook_accel.launch.job.metric_charts import DrawnStep, DrawnSteps, JobCharts
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

    def reached(self, step: DrawnStep) -> str:
        """`loss is 0.08 at step 120` if that holds for the mean over the ranks; otherwise empty."""
        mean = step.values.mean
        if not _COMPARISONS[self.sign](mean, self.limit):
            return ""
        return f"{self.metric} is {value(mean)} at {'step' if step.by_step else 'report'} {step.key[1]}"

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


class Wait:
    """Looks at what happens to a job. Of a metric, it sees the last value, and each that is drawn after that.

    Args:
        job: The job.
        until: A condition, if one is awaited.
    """

    def __init__(self, job: JobState, until: Condition | None) -> None:
        self._job = job
        self._until = until
        self._charts: JobCharts | None = None
        """Those of the attempt whose steps are followed."""
        self._steps = DrawnSteps()

    def look(self) -> Waited | None:
        """What has happened; `None` while nothing has."""
        job, ended = self._job, self._job.status.ended  # before the last values are looked at
        if self._until is not None and (reached := self._reached(self._until)):
            return Waited(REACHED, reached)
        if ended:
            return Waited(ENDED, self._without(f"it has ended ({job.status.value})"))
        is_stalled = job.stalled is not None and not job.stopping
        return Waited(STALLED, self._without("it is stalled")) if is_stalled else None

    def until(self, timeout: float, pause: Callable[[float], object]) -> Waited:
        """Waits until something happens.

        Args:
            timeout: Seconds to wait, at most.
            pause: Lets at most this many seconds pass, and brings the job up to date.
        """
        deadline = time.monotonic() + timeout
        while (found := self.look()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return Waited(TIMEOUT, self._without("nothing has happened yet"))
            pause(min(_INTERVAL, left))
        return found

    def close(self) -> None:
        """Follows the metric no longer."""
        if self._charts is not None and self._until is not None:
            self._charts.unfollow(self._until.metric, self._steps)
            self._charts = None

    def _reached(self, until: Condition) -> str:
        charts, running = self._job.charts, progress.running(self._job)
        if charts is not self._charts:
            self.close()
            self._charts, self._steps = charts, charts.follow_from_last(until.metric, running)
        charts.settle(until.metric, running)
        return next(filter(None, map(until.reached, self._steps.take())), "")

    def _without(self, text: str) -> str:
        return text if self._until is None else f"{text}; {self._until.missed(self._job)}"
