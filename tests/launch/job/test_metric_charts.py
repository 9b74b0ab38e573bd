"""Charts that do not mislead: by step, without a tail over ever fewer ranks, with a mark for what no line can show."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest

from notebook_accel.events import Metrics, Returned
from notebook_accel.launch.job import describe, progress
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.metric_charts import MOST_BINS, Drawing, better
from notebook_accel.launch.job.metric_text import metric_spark, metric_text


def a_job(*ranks: Iterable[tuple[int | None, float]], at: float | None = None) -> Job:
    """A job whose ranks have reported these steps and values, one rank after the other."""
    job = Job("train", 0, len(ranks))
    for rank, reports in enumerate(ranks):
        for step, value in reports:
            job.apply(rank, Metrics({"loss": value}, step, at=job.started if at is None else at))
    return job


def drawn(job: Job, bins: int = 99) -> Drawing:
    return progress.metric(job, "loss", bins)


def means(job: Job) -> list[tuple[float, float]]:
    return [(point.x, point.mean) for point in drawn(job).points]


def test_ranks_are_compared_at_the_same_step() -> None:
    """The range over ranks is of the last step that all have reported, however far each is ahead."""
    job = a_job([(step, 10.0 - step) for step in range(8)], [(step, 10.5 - step) for step in range(3)])
    text = metric_text(drawn(job))
    assert (text.now, text.range, text.facts[0]) == ("8.25", "8 to 8.5 over ranks", "last at step 2")


def test_a_range_over_several_reports_of_a_rank_is_not_said_to_be_over_ranks() -> None:
    """As where a loop passes the number of the epoch as the step of each batch."""
    epoch = [(0, 3.0), (0, 1.0), (0, 2.0)]
    assert metric_text(drawn(a_job(epoch))).range == "1 to 3 over 3 reports"
    assert metric_text(drawn(a_job(epoch, epoch))).range == "1 to 3 over 6 reports"


def test_the_end_of_a_line_is_where_every_rank_is() -> None:
    """While rank 0 is ahead, the mean over the ranks that are at its step would be its own value."""
    job = a_job([(step, 0.0) for step in range(10)], [(step, 1.0) for step in range(4)])
    assert means(job) == [(step, 0.5) for step in range(4)]
    for step in range(4, 6):
        job.apply(1, Metrics({"loss": 1.0}, step, at=job.started))
    assert means(job) == [(step, 0.5) for step in range(6)]


def test_who_follows_a_chart_gets_whole_steps() -> None:
    """The first step has begun before, so who has reported it is not known in full."""
    job = a_job([(0, 1.0), (1, 1.0)], [(0, 3.0)])
    steps = job.charts.follow("loss")
    for rank, step in ((1, 1), (0, 2), (1, 2)):
        job.apply(rank, Metrics({"loss": 3.0}, step, at=job.started))
    job.charts.settle("loss", [0, 1])
    assert [(step.key[1], step.by_rank) for step in steps.take()] == [(2, [(0, 3.0), (1, 3.0)])]


def test_a_rank_that_has_ended_is_not_waited_for() -> None:
    job = a_job([(step, 0.0) for step in range(4)], [(0, 1.0)])
    assert means(job) == [(0, 0.5)]
    job.apply(1, Returned())
    assert means(job) == [(0, 0.5), (1, 0.0), (2, 0.0), (3, 0.0)]


def test_a_rank_that_has_long_been_silent_is_not_waited_for() -> None:
    job = a_job([(step, 0.0) for step in range(4)], [(0, 1.0)])
    job.apply(0, Metrics({"loss": 0.0}, 4, at=job.started))
    assert len(means(job)) == 1
    old = a_job([(step, 0.0) for step in range(4)], [(0, 1.0)], at=1.0)
    assert len(means(old)) == 4


def test_a_new_metric_waits_a_moment_for_ranks_that_may_report_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    job = a_job([(0, 0.0)], [])
    assert means(job) == []
    assert metric_text(drawn(job)).now == "…"
    monkeypatch.setattr("time.time", lambda: job.started + 2)
    assert means(job) == [(0, 0.0)]


def test_what_arrives_late_is_merged_into_its_step() -> None:
    job = a_job([(step, 0.0) for step in range(3)], [], at=1.0)
    job.apply(1, Returned())
    assert means(job) == [(0, 0.0), (1, 0.0), (2, 0.0)]
    for step in range(3):
        job.apply(1, Metrics({"loss": 1.0}, step))
    assert means(job) == [(0, 0.5), (1, 0.5), (2, 0.5)]
    text = metric_text(drawn(job))
    assert (text.now, text.range) == ("0.5", "0 to 1 over ranks")
    assert "first 0.5 at step 0" in text.facts


def test_a_report_without_a_step_belongs_to_the_step_before_it() -> None:
    job = a_job([(4, 2.0), (None, 4.0), (5, 1.0)])
    assert means(job) == [(4, 3.0), (5, 1.0)]
    job = Job("train", 0, 2)
    for rank, step, value in ((1, 3, 2.0), (0, None, 4.0), (0, 3, 4.0)):
        job.apply(rank, Metrics({"loss": value}, step))
    assert means(job) == [(0, 4.0), (3, 3.0)]


def test_without_steps_the_reports_of_each_rank_are_counted() -> None:
    job = a_job([(None, 1.0), (None, 2.0)], [(None, 3.0)])
    assert means(job) == [(1, 2.0)]
    assert metric_text(drawn(job)).facts[0] == "last at report 1"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_breaks_the_line_and_has_a_mark(value: float) -> None:
    job = a_job([(step, value if step == 2 else 1.0) for step in range(5)])
    found = drawn(job)
    assert [[point.x for point in segment] for segment in found.segments] == [[0, 1], [3, 4]]
    (mark,) = found.marks
    assert (mark.x, mark.kind) == (2, str(value))
    assert metric_spark(found)[2] == "×"
    assert metric_text(found).facts[-1] == ("1 NaN, at step 2" if math.isnan(value) else "1 infinite, at step 2")


def test_marks_are_counted_and_outlast_thinning() -> None:
    job = a_job(
        [(step, math.nan if step in (5000, 7000) else math.inf if step == 9000 else 1.0) for step in range(10_000)]
    )
    found = drawn(job, 20)
    assert sorted(mark.kind for mark in found.marks) == ["inf", "nan", "nan"]
    assert metric_text(found).facts[-1] == "2 NaN and 1 infinite, first at step 5000"


def test_the_last_value_is_nan_if_that_is_what_was_reported() -> None:
    assert metric_text(drawn(a_job([(0, 1.0), (1, math.nan)]))).now == "nan"
    assert metric_text(drawn(a_job([(0, 1.0)], [(0, math.nan)]))).now == "nan"


def test_a_spike_of_one_step_is_drawn_and_has_its_number() -> None:
    job = a_job([(step, 50.0 if step == 4321 else 1.0) for step in range(10_000)])
    found = drawn(job, 60)
    assert len(found.points) <= 62
    assert max(point.high for point in found.points) == 50
    assert "max 50 at step 4321" in metric_text(found).facts


def test_single_numbers_are_reports_and_never_the_mean_of_a_bin() -> None:
    job = a_job([(step, 1000.0 - step) for step in range(1000)])
    found = drawn(job, 10)
    text = metric_text(found)
    assert text.now == "1"
    assert text.facts == [
        "last at step 999",
        "first 1000 at step 0",
        "min 1 at step 999 (best)",
        "max 1000 at step 0",
    ]
    assert (found.points[0].x, found.points[0].mean) == (0, 1000)
    assert (found.points[-1].x, found.points[-1].mean) == (999, 1)


def test_the_best_is_a_mean_over_ranks_and_the_least_is_of_one() -> None:
    job = a_job([(0, 5.0), (1, 0.0), (2, 3.0)], [(0, 5.0), (1, 6.0), (2, 2.0)])
    facts = metric_text(drawn(job)).facts
    assert facts[2:] == ["best mean 2.5 at step 2", "min 0 at step 1", "max 6 at step 1"]


@pytest.mark.parametrize(
    ("name", "sign"),
    [
        ("loss", -1),
        ("val/loss", -1),
        ("Train-Accuracy", 1),
        ("eval_f1", 1),
        ("lr", 0),
        ("glossary", 0),
        ("grad_norm", 0),
    ],
)
def test_whether_more_is_better_is_said_only_if_the_name_tells(name: str, sign: int) -> None:
    assert better(name) == sign
    job = Job("train", 0, 1)
    for step in range(3):
        job.apply(0, Metrics({name: float(step)}, step))
    facts = ", ".join(metric_text(progress.metric(job, name, 9)).facts)
    assert ("best" in facts) == (sign != 0)


def test_steps_that_begin_again_leave_the_last_report_the_last() -> None:
    job = a_job([(step, float(step)) for step in (0, 1, 2, 0, 1)])
    text = metric_text(drawn(job))
    assert (text.now, text.facts[0]) == ("1", "last at step 1")


@pytest.mark.parametrize("stride", [1, 7, 10**6, 2**50])
def test_a_chart_has_few_bins_however_long_the_run(stride: int) -> None:
    job = a_job([(step * stride, float(step)) for step in range(5000)])
    found = drawn(job, 10**6)
    assert MOST_BINS // 2 <= len(found.bins) <= MOST_BINS
    assert sum(values.count for values in found.bins) == 5000
    assert [values.first for values in found.bins] == sorted(values.first for values in found.bins)


def test_a_chart_of_numbers_near_the_greatest_float_is_finite() -> None:
    found = drawn(a_job([(step, (-1) ** step * 1.7e308) for step in range(600)]), 10)
    assert all(math.isfinite(number) for point in found.points for number in point)
    heights = [point.high - point.low for point in found.points]
    assert 0 < max(heights) < math.inf


def test_the_end_of_a_job_draws_all_that_was_reported() -> None:
    job = a_job([(step, 0.0) for step in range(4)], [(0, 1.0)])
    job.finish(Status.DONE)
    assert len(means(job)) == 4
    assert "last at step 3" in describe.describe(job)
