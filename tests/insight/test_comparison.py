"""Two jobs side by side."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from notebook_accel.errors import ConfigurationError
from notebook_accel.events import Exited, Heartbeat, Report, Reports, StepTimes
from notebook_accel.insight.comparison import Comparison, Line, compare
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.runs.scaling import ScalingCurve

PARTS = {"data": 1.0, "copy": 0.0, "forward": 2.0, "backward": 4.0, "sync": 0.5, "optimizer": 0.5, "rest": 0.0}
"""Seconds of 100 steps."""


def job(ranks: int, *, samples: int = 3200, world_size: int | None = None, **parts: float) -> Job:
    """A job of steps that take 80 ms, or what the parts make of it."""
    made = Job("train", 0, ranks, world_size=world_size)
    for rank in range(ranks):
        made.apply(rank, StepTimes(PARTS | parts, steps=100, measured=100, samples=samples))
    return made


def reports(*values: tuple[float, int | None, float]) -> Iterator[Reports]:
    """Losses, with their steps, and so many seconds after the epoch."""
    return Reports.pack([Report({"loss": value}, step, at) for value, step, at in values])


def named(found: Comparison) -> dict[str, Line]:
    return {line.name.strip(): line for line in found.lines}


def test_more_ranks_are_judged_by_their_efficiency() -> None:
    found = compare(job(1), job(2, sync=0.9))
    assert found.verdict == "1.9 times the samples per second on 2 ranks instead of 1: 95% efficiency"
    assert named(found)["samples per second"][1:] == ("400", "761.9", "1.90×")
    assert named(found)["sync"][1:] == ("5 ms", "9 ms", "1.80×")
    assert "copy" not in named(found), "it takes nothing in either"


def test_the_part_that_changed_most_is_named() -> None:
    assert compare(job(2), job(2, data=9.0)).verdict == (
        "0.5 times the samples per second; the largest difference is in data: 90 ms instead of 10 ms per step"
    )
    assert compare(job(2), job(2, data=1.1)).verdict == "about as many samples per second"


def test_ranks_of_other_kernels_count_as_those_that_are_known() -> None:
    assert compare(job(2, world_size=4), job(4)).verdict == "about as many samples per second"


def test_without_a_fixed_size_of_batches_steps_are_counted() -> None:
    found = compare(job(1), job(2, samples=0))
    assert found.verdict == "2 times the steps per second of all ranks on 2 ranks instead of 1: 100% efficiency"
    assert named(found)["samples per second"][1:] == ("400", "", "")
    assert compare(Job("a", 0, 1), job(1)).verdict == "the jobs have no measurements in common"


def test_values_are_compared_at_the_same_step_and_at_the_same_time() -> None:
    first, second = job(2), job(1)
    for rank, loss in enumerate((0.4, 0.6)):
        for each in reports((2.0, 0, first.started + 1), (loss, 10, first.started + 2), (0.1, 20, first.started + 9)):
            first.apply(rank, each)
    for each in reports((1.5, 0, second.started + 1), (0.7, 10, second.started + 5)):
        second.apply(0, each)
    lines = named(compare(first, second))
    assert lines["loss at step 10"][1:] == ("0.5", "0.7", "")
    assert lines["loss after 5.0 s"][1:] == ("0.5", "0.7", ""), (
        "the mean of the ranks, not what one of them reported last"
    )


def test_the_peak_of_memory_counts_once_a_rank_has_ended() -> None:
    first, second = job(1), job(2)
    first.apply(0, Heartbeat(2**30, device_used=3 * 2**20))
    for rank, peak in enumerate((2**30, 2**31)):
        second.apply(rank, Heartbeat(5))
        second.apply(rank, Exited(0, peak_resident=peak))
    lines = named(compare(first, second))
    assert lines["memory of a rank, at most"][1:] == ("1.0 GB", "2.0 GB", "2.00×")
    assert lines["memory on a device"][1:] == ("3 MB", "", "")


def test_it_prints_as_a_table_and_escapes_names() -> None:
    first, second = Job("<lambda>", 0, 1), job(1)
    found = compare(first, second)
    head, titles, ranks, *_ = repr(found).splitlines()
    assert head == found.verdict
    assert titles.split() == ["<lambda>()", first.id, "train()", second.id]
    assert ranks.split() == ["ranks", "1", "1", "1.00×"]
    assert "&lt;lambda&gt;" in found._repr_html_()
    assert "<lambda>" not in found._repr_html_()


@pytest.mark.parametrize("other", [None, "abc123", [1]])
def test_only_two_different_jobs_can_be_compared(other: Any) -> None:
    with pytest.raises(ConfigurationError, match="compare\\(\\) takes two jobs, not "):
        compare(job(1), other)
    one = job(1)
    with pytest.raises(ConfigurationError, match=r"both are train\(\) \S+: give two different jobs"):
        compare(one, one)


def test_a_curve_has_the_efficiency_of_each_number_of_ranks() -> None:
    curve = ScalingCurve("train()", {1: job(1), 2: job(2, sync=0.9), 4: job(4, sync=8.5)})
    assert [(point.ranks, round(point.speedup, 2), round(point.efficiency, 2)) for point in curve.points] == [
        (1, 1.0, 1.0),
        (2, 1.9, 0.95),
        (4, 2.0, 0.5),
    ]
    assert repr(curve).splitlines()[2] == "    2 ranks     761.9 samples per second, 1.90×,  95% efficiency"
    assert curve._repr_html_().count("% efficiency") == 3
    assert curve.notes == []


def test_a_curve_counts_steps_or_runs_where_it_must() -> None:
    assert ScalingCurve("t", {1: job(1, samples=0), 2: job(2)}).unit == "steps per second of all ranks"
    jobs = {ranks: Job("t", 0, ranks) for ranks in (1, 2)}
    for each in jobs.values():
        each.started = time.time() - 1.0
        each.finish(Status.DONE)
    curve = ScalingCurve("t", jobs)
    assert curve.unit == "runs per second"
    assert curve.points[1].efficiency == pytest.approx(0.5, abs=0.05)
    assert "compares whole runs" in repr(curve)
