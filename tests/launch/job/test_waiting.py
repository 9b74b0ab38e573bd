"""Waits for what happens to a job."""

from __future__ import annotations

import math

import pytest

from notebook_accel.errors import ConfigurationError
from notebook_accel.events import AttemptStarted, Location, Metrics, Phase, PhaseChanged, Stalled
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.waiting import Condition, Wait, Waited


def job() -> Job:
    made = Job("train", 0, 2)
    made.apply(None, AttemptStarted(0))
    for rank in range(2):
        made.apply(rank, PhaseChanged(Phase.RUNNING))
    return made


def report(made: Job, step: int, *losses: float) -> None:
    for rank, loss in enumerate(losses):
        made.apply(rank, Metrics({"loss": loss}, step))


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("loss<0.1", ("loss", "<", 0.1)),
        (" val/loss <= -1e-3 ", ("val/loss", "<=", -0.001)),
        ("acc >= .5", ("acc", ">=", 0.5)),
        ("the top 1 > inf", ("the top 1", ">", math.inf)),
    ],
)
def test_a_condition_is_a_metric_a_sign_and_a_number(text: str, condition: tuple[str, str, float]) -> None:
    assert Condition.parse(text) == Condition(*condition)


@pytest.mark.parametrize("text", ["loss", "loss<", "<0.1", "loss<a", "loss=0.1", "loss<nan", "", "loss<0.1 1", 3])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not a condition: .*'loss < 0\.1'"):
        Condition.parse(text)


def test_a_value_is_the_mean_over_the_ranks_of_the_last_step() -> None:
    made = job()
    wait = Wait(made, Condition.parse("loss < 0.1"))
    assert wait.look() is None
    report(made, 1, 0.05, 0.25)
    assert wait.look() is None, "one rank's value is not the job's"
    report(made, 2, 0.05, 0.11)
    assert wait.look() == Waited("reached", "loss is 0.08 at step 2")
    report(made, 3, math.nan, 0.01)
    assert wait.look() is None, "NaN is not less than anything"


def test_a_wait_begins_with_the_last_value_and_misses_none_after_that() -> None:
    made, until = job(), Condition.parse("loss < 0.1")
    report(made, 1, 0.05, 0.05)
    report(made, 2, 0.5, 0.5)
    wait = Wait(made, until)
    assert wait.look() is None, "what was before the wait doesn't count"
    report(made, 3, 0.04, 0.04)
    report(made, 4, 0.5, 0.5)
    assert wait.look() == Waited("reached", "loss is 0.04 at step 3")
    wait.close()
    made.apply(None, AttemptStarted(1))
    report(made, 1, 0.03, 0.03)
    again = Wait(made, until)
    assert again.look() == Waited("reached", "loss is 0.03 at step 1")
    made.apply(None, AttemptStarted(2))
    report(made, 1, 0.02, 0.02)
    assert again.look() == Waited("reached", "loss is 0.02 at step 1"), "a restart is followed, too"


def test_the_end_and_a_stall_are_told_with_what_was_missed() -> None:
    made, until = job(), Condition.parse("acc > 0.9")
    report(made, 1, 0.5, 0.5)
    made.apply(None, Stalled([Location(0, Phase.WAITING, "barrier")], since=made.started))
    assert Wait(made, until).look() == Waited("stalled", "it is stalled; acc was not reported; reported were loss")
    made.finish(Status.DONE)
    assert Wait(made, None).look() == Waited("ended", "it has ended (done)")
    found = Wait(made, Condition.parse("loss>1")).look()
    assert found == Waited("ended", "it has ended (done); loss is 0.5, and not > 1")


def test_a_wait_ends_at_its_time_or_as_soon_as_something_happens() -> None:
    made = job()
    assert Wait(made, None).until(0, lambda _: None).event == "timeout"
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            made.finish(Status.FAILED)

    assert Wait(made, None).until(60, pause) == Waited("ended", "it has ended (failed)")
    assert len(pauses) == 3


def test_a_job_is_waited_for_until_a_value_or_its_end() -> None:
    made = job()
    assert made.wait(0, until="loss<0.1") is False
    report(made, 1, 0.05, 0.05)
    assert made.wait(60, until="loss<0.1") is True
    made.finish(Status.DONE)
    assert (made.wait(until="loss<0.1"), made.wait(until="loss>1"), made.wait()) == (True, False, True)
    with pytest.raises(ConfigurationError, match="is not a condition"):
        made.wait(until="loss")
