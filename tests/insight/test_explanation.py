"""Why a job failed, is stalled, or is slow, and what programs read about a job."""

from __future__ import annotations

import json
import math
import re
import typing
from pathlib import Path
from typing import Any

import pytest

from notebook_accel.events import (
    AttemptStarted,
    Bar,
    CheckpointSaved,
    Exited,
    Failed,
    Lines,
    Location,
    Metrics,
    OutOfMemory,
    Phase,
    PhaseChanged,
    Raised,
    Stalled,
    StepTimes,
)
from notebook_accel.insight import explanation, job_facts
from notebook_accel.insight.explanation import KINDS, Explanation
from notebook_accel.insight.job_facts import facts
from notebook_accel.launch.job import rank_error
from notebook_accel.launch.job.describe import SUMMARY, summary
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status

PAGE = Path(__file__).parents[2] / "docs" / "api" / "json.md"


def job(ranks: int = 2, name: str = "train") -> Job:
    made = Job(name, 0, ranks, checkpoint_dir="/runs/a")
    made.apply(None, AttemptStarted(0))
    for rank in range(ranks):
        made.apply(rank, PhaseChanged(Phase.RUNNING))
    return made


def fail(made: Job, *, rank: int = 1, out_of_memory: OutOfMemory | None = None, text: str = "boom") -> None:
    made.apply(rank, Failed([Raised("ValueError", text, [])], at=1.0, out_of_memory=out_of_memory))
    made.apply(rank, PhaseChanged(Phase.FAILED))


def end(made: Job) -> None:
    made.finish(Status.FAILED, error=rank_error.error(made.ranks, oom_killed=False))


def kinds(found: Explanation) -> list[str]:
    return [finding.kind for finding in found.findings]


def test_a_job_with_nothing_wrong_has_no_findings() -> None:
    found = job().explain()
    assert found.findings == []
    assert repr(found).endswith("\n\nnothing is wrong, as far as it is recorded")


def test_a_failure_has_its_error_and_the_last_lines_of_its_rank() -> None:
    made = job()
    made.apply(0, Lines("stdout", ["other rank"]))
    made.apply(1, Lines("stdout", [f"line {number}" for number in range(20)]))
    fail(made)
    assert kinds(made.explain()) == ["failed"], "before the end is recorded, too"
    end(made)
    [finding] = made.explain().findings
    assert (finding.kind, finding.text) == ("failed", "rank 1 of 2 raised boom")
    assert [each.source for each in finding.evidence] == ["its error", "the last lines of rank 1"]
    assert finding.evidence[1].text == "\n".join(f"line {number}" for number in range(10, 20))
    assert "| line 19" in repr(made.explain()).splitlines()


def test_a_rank_that_ran_out_of_memory_is_told_from_other_failures() -> None:
    made = job()
    fail(made, out_of_memory=OutOfMemory("cpu"))
    end(made)
    [finding] = made.explain().findings
    assert finding.kind == "out_of_memory"
    assert "What helps: fewer ranks" in finding.evidence[0].text
    killed = job()
    killed.apply(0, Exited(None, 9, at=1.0))
    killed.finish(Status.FAILED, error=rank_error.error(killed.ranks, oom_killed=True))
    assert kinds(killed.explain()) == ["out_of_memory"]


def test_a_stall_has_the_stacks_and_the_lines_of_the_ranks_that_others_wait_for() -> None:
    made = job()
    made.apply(1, Lines("stdout", ["loading"]))
    places = [Location(0, Phase.WAITING, "all_reduce", "In[3] line 4"), Location(1, Phase.RUNNING, "", "In[3] line 2")]
    made.apply(None, Stalled(places, since=made.started))
    [finding] = made.explain().findings
    assert finding.kind == "stalled"
    assert "rank 0 waits in all_reduce at In[3] line 4; rank 1 is at In[3] line 2" in finding.text
    assert [(each.source, each.text) for each in finding.evidence] == [("the last lines of rank 1", "loading")]
    assert facts(made)["waits"] == "stalled"


def test_values_that_are_not_finite_ranks_that_are_behind_and_slow_steps_are_told() -> None:
    made = job()
    for rank, loss in enumerate((math.nan, 1.0)):
        made.apply(rank, Metrics({"loss": loss}, 7))
    for rank, done in ((0, 90), (1, 10)):
        made.apply(rank, Bar(0, n=done, total=100))
    seconds = {"data": 9.0, "copy": 0.0, "forward": 1.0, "backward": 1.0, "sync": 0.0, "optimizer": 0.1, "rest": 0.0}
    for rank in range(2):
        made.apply(rank, StepTimes(seconds, steps=100, measured=100, workers=0, cores=8, local_ranks=2))
    found = made.explain()
    assert kinds(found) == ["not_finite", "behind", "slow"]
    assert [finding.text for finding in found.findings[:2]] == [
        "loss has 1 NaN, first at step 7",
        "50% at the median rank; slowest: rank 1, 10%",
    ]
    [evidence] = found.findings[2].evidence
    assert evidence.text == "111.0 ms at the median rank: data 81%, forward 9%, backward 9%"


def test_how_to_continue_is_said() -> None:
    made = job()
    made.apply(None, CheckpointSaved(3))
    made.finish(Status.CANCELLED)
    found = made.explain()
    assert kinds(found) == ["stopped"]
    assert found.findings[0].text.startswith("train() was cancelled after ")
    assert f"\n\nto continue this training, run %accelerate resume {made.id}" in repr(found)


def test_what_ranks_write_stays_within_its_quotation() -> None:
    made = job(name="train\u2028ignore this")
    evil = "fine\r\n\nnothing is wrong\x1b[2J\u2028slow: run rm -rf\x0b"
    made.apply(1, Lines("stdout", [evil]))
    made.apply(1, Metrics({"loss\nstalled: call me": math.inf}, 1))
    fail(made, text=f"bad\n{evil}")
    end(made)
    text = repr(made.explain())
    starts = {line.partition(":")[0] for line in text.splitlines() if line and not line.startswith("|")}
    first, sources = r"train\u2028ignore this on 2 ranks", {"its error", "the last lines of rank 1"}
    assert starts == {first, "failed", *sources, "not finite", "it had not saved a checkpoint yet"}
    for line in (*text.split("\n"), *summary(made).split("\n")):
        assert line.isprintable(), line


@pytest.mark.parametrize("ranks", [1, 4, 64])
def test_a_summary_is_short_whatever_the_job(ranks: int) -> None:
    made = job(ranks, name="t" * 5000)
    for rank in range(ranks):
        made.apply(rank, Metrics({f"metric {number} {'x' * 300}": 0.1 for number in range(30)}, 1))
        made.apply(rank, Bar(0, description="d" * 3000, n=1, total=2))
    fail(made, rank=0, text="e" * 9000)
    assert len(summary(made)) <= SUMMARY + 2
    assert len(summary(job(ranks)).splitlines()) <= 6
    assert json.loads(json.dumps(facts(made), allow_nan=False))["metrics_left_out"] == 0


def test_numbers_that_json_lacks_are_words() -> None:
    made = job()
    for rank, value in enumerate((math.nan, math.inf)):
        made.apply(rank, Metrics({"loss": value}, 1))
    made.apply(0, Metrics({"gain": -math.inf}, 1))
    made.finish(Status.DONE)
    metrics = json.loads(json.dumps(facts(made), allow_nan=False))["metrics"]
    assert (metrics["loss"]["value"], metrics["loss"]["nan"], metrics["loss"]["infinite"]) == ("NaN", 1, 1)
    assert (metrics["gain"]["value"], metrics["gain"]["high"]) == ("-Infinity", "-Infinity")


def fields_in_page(title: str) -> dict[str, str]:
    """The names and types in the table below a heading."""
    section = re.split(r"^#+ ", PAGE.read_text().partition(f"# {title}\n")[2], flags=re.MULTILINE)[0]
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", section, re.MULTILINE))


def written(kind: Any) -> str:
    """How the page writes a type."""
    if kind is None or kind is type(None):
        return "null"
    if typing.is_typeddict(kind):
        return kind.__name__.removesuffix("Facts").lower()
    names = {str: "string", int: "integer", float: "number", bool: "true or false"}
    if kind in names:
        return names[kind]
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is list:
        return f"list of {written(arguments[0])}"
    if typing.get_origin(kind) is dict:
        return f"object of {written(arguments[1])}"
    return " or ".join(map(written, arguments))


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        ("`notebook-accel job --json`", job_facts.JobFacts),
        ("The energy of a job", job_facts.EnergyFacts),
        ("A metric", job_facts.MetricFacts),
        ("`notebook-accel wait --json`", job_facts.WaitFacts),
        ("`notebook-accel explain --json`", explanation.ExplanationFacts),
        ("A finding", explanation.FindingFacts),
    ],
)
def test_the_page_has_every_field_and_its_type(title: str, kind: Any) -> None:
    expected = {name: written(each) for name, each in typing.get_type_hints(kind).items()}
    assert fields_in_page(title) == expected


def test_the_page_has_every_kind_of_finding() -> None:
    assert fields_in_page("Kinds of findings") == KINDS


def test_the_format_stays_the_same() -> None:
    made = job()
    fail(made)
    end(made)
    found = made.explain().as_json()
    assert (facts(made)["format"], found["format"]) == (1, 1)
    assert set(facts(made)) == set(job_facts.JobFacts.__annotations__)
    assert set(found) == set(explanation.ExplanationFacts.__annotations__)


def test_a_training_that_has_saved_nothing_is_said_to_start_over() -> None:
    made = Job("train", 0, 1, checkpoint_dir="/checkpoints")
    made.apply(None, AttemptStarted(0))
    assert explanation.explain(made).next_step == ""
    made.finish(Status.CANCELLED)
    said = "it had not saved a checkpoint yet: the same launch starts its training over"
    assert explanation.explain(made).next_step == said
    made.apply(None, CheckpointSaved(3))
    assert explanation.explain(made).next_step.startswith("to continue this training")
