"""A metric of several jobs, read from their reports while they run and afterwards."""

from __future__ import annotations

import math

import pytest

from notebook_accel.events import Metrics
from notebook_accel.jupyter.model import Run
from notebook_accel.jupyter.reader.comparisons import MOST, Comparisons
from tests.jupyter.conftest import RecordedJob, end
from tests.launch.journal.cases import put_state


@pytest.fixture
def comparisons() -> Comparisons:
    return Comparisons()


def points(run: Run, metric: str) -> tuple[list[float], list[float | None]] | None:
    curve = run["curves"].get(metric)
    return None if curve is None else (curve["x"], curve["mean"])


def test_runs_that_go_on_and_runs_that_are_over_are_compared(comparisons: Comparisons) -> None:
    running, ended = RecordedJob("<b>wide</b>"), RecordedJob("deep")
    for step in (1, 2):
        ended.reach(step, 1 / step)
    ended.reach(3, 0.1, name="accuracy")
    end(ended)
    running.reach(1, 4.0)
    jobs = [running.job.id, ended.job.id]
    first = comparisons.compare(jobs, "loss")
    assert (first["names"], first["complete"]) == (["loss", "accuracy"], True)
    assert [points(run, "loss") for run in first["runs"]] == [([1], [4.0]), ([1, 2], [1.0, 0.5])]
    assert [points(run, "accuracy") for run in first["runs"]] == [None, ([3], [0.1])]
    assert [run["label"] for run in first["runs"]] == ["<b>wide</b>()", "deep()"]
    facts = [{fact["name"]: fact["text"] for fact in run["facts"]} for run in first["runs"]]
    assert [each["State"] for each in facts] == ["running", "done"]
    assert [(each["loss"], each.get("accuracy")) for each in facts] == [("4", None), ("0.5", "0.1")]
    assert facts[1]["Best"] == "0.5 at step 2"
    running.reach(2, math.nan)
    second = comparisons.compare(jobs, "loss")
    assert [points(run, "loss") for run in second["runs"]] == [([1, 2], [4.0, None]), ([1, 2], [1.0, 0.5])]
    other = comparisons.compare(jobs, "accuracy")
    assert [run["problem"] for run in other["runs"]] == ["it hasn't reported accuracy", ""]
    end(running)


def test_arguments_that_differ_are_columns_and_tell_runs_apart(comparisons: Comparisons) -> None:
    given = [{"lr": "0.3", "width": "64"}, {"lr": "0.05", "width": "64"}, {"lr": "0.05", "width": "64"}]
    made = [RecordedJob(arguments=arguments) for arguments in given]
    for each in made:
        end(each)
    runs = comparisons.compare([each.job.id for each in made], "loss")["runs"]
    assert [[fact["text"] for fact in run["facts"] if fact["name"] in ("lr", "width")] for run in runs] == [
        ["0.3"],
        ["0.05"],
        ["0.05"],
    ]
    assert next(fact["order"] for fact in runs[0]["facts"] if fact["name"] == "lr") == 0.3
    assert runs[0]["label"] == "train(), lr=0.3"
    assert runs[1]["label"].startswith("train(), lr=0.05, 20")
    assert runs[1]["label"] != runs[2]["label"]


def test_an_argument_and_a_metric_of_one_name_have_a_column_each(comparisons: Comparisons) -> None:
    made = [RecordedJob(arguments={"lr": text}) for text in ("0.3", "0.05")]
    for each in made:
        each.reach(1, 0.01, name="lr")
        end(each)
    runs = comparisons.compare([each.job.id for each in made], "loss")["runs"]
    facts = {fact["name"]: fact["text"] for fact in runs[0]["facts"]}
    assert (facts["lr (argument)"], facts["lr"]) == ("0.3", "0.01")


def test_a_metric_beyond_the_first_is_read_when_it_is_asked_for(comparisons: Comparisons, job: RecordedJob) -> None:
    job.add(*((rank, Metrics({f"m{number}": float(number) for number in range(30)}, 1)) for rank in range(2)))
    first = comparisons.compare([job.job.id], "m0")["runs"][0]
    assert ("m5" in first["curves"], "m29" in first["curves"]) == (True, False)
    assert comparisons.compare([job.job.id], "m29")["runs"][0]["curves"]["m29"]["mean"] == [29.0]


def test_a_long_run_is_thinned_and_read_bit_by_bit(comparisons: Comparisons) -> None:
    job = RecordedJob()
    for step in range(600):
        job.reach(step, float(step))
    end(job)
    found = comparisons.compare([job.job.id], "loss", seconds=0)
    assert not found["complete"]
    calls = 1
    while not found["complete"]:
        found = comparisons.compare([job.job.id], "loss", seconds=0)
        calls += 1
        assert calls < 1000
    [run] = found["runs"]
    steps = run["curves"]["loss"]["x"]
    assert (steps[0], steps[-1], len(steps) < 300) == (0, 599, True)


def test_what_cannot_be_read_says_so_beside_the_others(comparisons: Comparisons) -> None:
    job, broken = RecordedJob(), RecordedJob()
    job.reach(1, 1.0)
    for each in (job, broken):
        end(each)
    put_state(broken.record, b"{}\n")
    found = comparisons.compare([broken.job.id, "../../etc", job.job.id], "loss")
    problems = [run["problem"] for run in found["runs"]]
    assert ("no valid first line" in problems[0], "there is no job ../../etc" in problems[1]) == (True, True)
    assert found["runs"][2]["curves"]["loss"]["mean"] == [1.0]
    assert len(comparisons.compare([job.job.id] * 50, "loss")["runs"]) == MOST
