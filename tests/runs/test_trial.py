"""What is read from the job of a trial."""

from __future__ import annotations

import math

import pytest

from notebook_accel.events import Report, Reports
from notebook_accel.insight.metric_steps import MetricSteps
from notebook_accel.launch.job.job import Job
from notebook_accel.runs import trial


def report(job: Job, rank: int, value: float, step: int | None = None, name: str = "loss") -> None:
    for event in Reports.pack([Report({name: value}, step, job.started + (step or 0))]):
        job.apply(rank, event)


def new(steps: MetricSteps) -> list[tuple[int, float]]:
    return [(step.key[1], step.values.mean) for step in steps.new()]


def test_a_step_counts_once_all_ranks_that_report_have_got_there() -> None:
    job = Job("train", 0, 2)
    steps = MetricSteps(job, "loss")
    assert new(steps) == []
    report(job, 0, 1.0, 0)
    report(job, 1, 3.0, 0)
    report(job, 0, 5.0, 1)
    assert new(steps) == [(0, 2.0)]
    report(job, 0, 6.0, 2)
    assert new(steps) == []
    report(job, 1, 7.0, 1)
    report(job, 1, 8.0, 2)
    assert new(steps) == [(1, 6.0), (2, 7.0)]
    assert new(steps) == []


def test_reports_without_steps_are_counted() -> None:
    job = Job("train", 0, 1)
    steps = MetricSteps(job, "loss")
    report(job, 0, 4.0)
    report(job, 0, 9.0, name="other")
    report(job, 0, 3.0)
    assert new(steps) == [(1, 4.0), (2, 3.0)]


def test_the_last_value_is_the_mean_of_the_ranks_at_the_last_step() -> None:
    job = Job("train", 0, 2)
    for step, values in enumerate([(8.0, 8.0), (1.0, 2.0), (4.0, 6.0)]):
        for rank, value in enumerate(values):
            report(job, rank, value, step)
    found = trial.measure(job)["loss"]
    assert (found.last, found.step, found.least, found.most) == (5.0, 2, 1.5, 8.0)


def test_extremes_are_of_numbers_alone() -> None:
    job = Job("train", 0, 1)
    report(job, 0, 2.0, 0)
    report(job, 0, math.nan, 1)
    found = trial.measure(job)["loss"]
    assert math.isnan(found.last)
    assert (found.least, found.most) == (2.0, 2.0)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1e-5, "1e-5"),
        (0.12345678, "0.1235"),
        (3, "3"),
        (True, "True"),
        ("a  b", "a b"),
        (len, "len"),
        ([1, 2], "[1, 2]"),
    ],
)
def test_parameters_are_short_on_the_board(value: object, words: str) -> None:
    assert trial.shown(value) == words
    assert len(trial.shown("x" * 100)) == 30
