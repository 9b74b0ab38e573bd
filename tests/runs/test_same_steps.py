"""A sweep, a rule, and a wait see the same steps of the same training, with the same values: those of the chart."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable

import pytest

from notebook_accel.events import AttemptStarted, Hello, Report, Reports, Returned
from notebook_accel.insight.metric_steps import MetricSteps
from notebook_accel.launch.driver.rule_watch import RuleWatch
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.metric_charts import DrawnStep
from notebook_accel.launch.job.rules import when
from notebook_accel.launch.job.text import value
from notebook_accel.launch.job.waiting import Condition, Wait
from notebook_accel.launch.show import console
from tests.launch.journal.cases import Notices

RANKS, STEPS = 3, 60
Seen = list[tuple[int, float]]


class Training:
    """Ranks that report a metric at each step, each at its own pace."""

    def __init__(self, seed: int) -> None:
        self.job = Job("train", 0, RANKS)
        self._random = random.Random(seed)
        self._next = [0] * RANKS
        self.values = [[self._random.uniform(0, 9) for _ in range(STEPS)] for _ in range(RANKS)]
        self.values[1][7] = math.nan

    def begin(self) -> None:
        self.job.apply(None, AttemptStarted(0))
        for rank in range(RANKS):
            self.job.apply(rank, Hello(rank + 1, "host"))

    def run(self, look: Callable[[], object]) -> None:
        """Reports all steps, and looks now and then."""
        while ranks := [rank for rank in range(RANKS) if self._next[rank] < STEPS]:
            rank = self._random.choice(ranks)
            until = min(STEPS, self._next[rank] + self._random.randint(1, 4))
            steps = range(self._next[rank], until)
            for event in Reports.pack(
                Report({"loss": self.values[rank][step], "other": -1.0}, step, self.job.started) for step in steps
            ):
                self.job.apply(rank, event)
            self._next[rank] = until
            if self._random.random() < 0.3:
                look()
        for rank in range(RANKS):
            self.job.apply(rank, Returned())
        look()

    @property
    def expected(self) -> Seen:
        return [(step, sum(by_rank) / RANKS) for step, by_rank in enumerate(zip(*self.values, strict=True))]


def drawn(steps: Iterable[DrawnStep]) -> Seen:
    return [(step.key[1], step.values.mean) for step in steps]


@pytest.mark.parametrize("seed", range(5))
def test_all_see_each_step_once_with_the_mean_that_the_chart_shows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "current", Notices())
    training = Training(seed)
    job = training.job
    rules = [when("loss", is_nan=True), when("loss", above=4.5)]
    job.begin_with(rules)
    training.begin()
    watch = RuleWatch(job, lambda: None, lambda request, then: then({}))
    sweep, chart = MetricSteps(job, "loss"), job.charts.follow("loss")
    seen: dict[str, Seen] = {"sweep": [], "chart": []}
    limit = Condition.parse("loss > 4.5")
    wait, waited = Wait(job, limit), list[str]()
    now = iter(range(10**6))

    def look() -> None:
        watch.poll(float(next(now)))
        seen["sweep"] += drawn(sweep.new())
        seen["chart"] += drawn(chart.take())
        if not waited and (found := wait.look()) is not None:
            waited.append(found.text)

    training.run(look)
    expected = training.expected
    for name, found in seen.items():
        assert [step for step, _ in found] == list(range(STEPS)), name
        assert [mean for _, mean in found] == pytest.approx([mean for _, mean in expected], nan_ok=True), name
    nan = job.rule_changes[1]
    assert (nan.met, nan.last) == (1, "loss is NaN at step 7 on rank 1")
    above = [step for step, mean in expected if mean > 4.5]
    assert waited == [f"loss is {value(expected[above[0]][1])} at step {above[0]}"], "also if it was between two looks"
    begins = [step for step in above if step - 1 not in above]
    assert job.rule_changes[2].met == len(begins)
