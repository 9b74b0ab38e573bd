"""What the browser is told of a job."""

from __future__ import annotations

import json
import runpy
import time
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_accel.events import (
    Bar,
    ControlsChanged,
    Exited,
    Failed,
    Frame,
    Heartbeat,
    Hello,
    Lines,
    Location,
    Metrics,
    Phase,
    PhaseChanged,
    Raised,
    Returned,
    Saving,
    Stalled,
)
from notebook_accel.launch.job.headline import Headline, headline
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.rank_state import WAITS_FOR_INPUT
from notebook_accel.panel import panel_model
from notebook_accel.panel.merge_patch import diff
from notebook_accel.panel.pacing import Pacer
from notebook_accel.panel.panel_state import StateMaker

ROOT = Path(__file__).parents[2]
GENERATE = runpy.run_path(str(ROOT / "scripts" / "generate.py"))


def a_job(size: int) -> Job:
    job = Job("train", 0, size, "2 × GPU")
    job.status = Status.RUNNING
    job.started -= 100
    for rank in range(size):
        job.apply(rank, Hello(1, "host"))
        job.apply(rank, PhaseChanged(Phase.RUNNING))
        job.apply(rank, Heartbeat(2**29, 2**31, 2**33))
        move(job, rank, 50 + rank)
    return job


def move(job: Job, rank: int, n: int) -> None:
    job.apply(rank, Bar(0, n=1, total=4, description="epoch", elapsed=10.0))
    job.apply(rank, Bar(1, n=n, total=2000, description="batch", rate=10.0, elapsed=n / 10, depth=1))
    job.apply(rank, Bar(2, n=n % 7, total=7, description="micro", rate=70.0, elapsed=1.0, depth=2))
    job.apply(rank, Metrics({"loss": 1 / n}, n))


def merged(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """As RFC 7396 has it."""
    result = dict(target)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            before = result.get(name)
            result[name] = merged(before if isinstance(before, dict) else {}, value)
        else:
            result[name] = value
    return result


def test_no_button_moves_when_others_come() -> None:
    """One that moves while it is pressed gets no click, and one that takes its place gets it instead."""
    job = a_job(2)
    job.started = time.time()

    def actions() -> list[str]:
        return [command["action"] for command in StateMaker(job).make()["controls"]["commands"]]

    first = actions()
    assert first == ["flamegraph", "profile"]
    job.apply(None, ControlsChanged({}))
    assert actions() == [*first, "pause", "checkpoint", "end after epoch"]


def test_a_training_that_waits_for_a_checkpoint_is_saving() -> None:
    job = a_job(2)

    def states() -> set[str]:
        return {StateMaker(job).make()["head"]["state"], headline(job).status, again().status}

    def again() -> Headline:
        job_again = Job("train", 0, 2)
        job_again.status = Status.RUNNING
        for event in job.ranks[0].events():
            job_again.apply(0, event)
        return headline(job_again)

    assert states() == {"running"}
    job.apply(0, Saving(True))
    assert states() == {"saving"}
    job.apply(0, PhaseChanged(Phase.WAITING, "barrier"))
    assert states() == {"saving"}
    job.apply(0, Saving(False))
    assert states() == {"running"}


def test_a_job_that_went_on_to_its_end_is_not_said_to_be_stalled() -> None:
    job = a_job(2)
    job.apply(None, Stalled([Location(0, Phase.WAITING, "barrier"), Location(1, Phase.RUNNING)], job.started))
    assert "No progress" in StateMaker(job).make()["head"]["note"]
    job.finish(Status.DONE)
    assert StateMaker(job).make()["head"]["note"] == ""
    assert {rank["mark"] for rank in StateMaker(job).make()["ranks"].values()} == {""}


def test_machines_are_told_where_there_are_several() -> None:
    job = a_job(4)
    maker = StateMaker(job)
    assert {rank["host"] for rank in maker.whole()["ranks"].values()} == {""}
    for rank in (2, 3):
        job.apply(rank, Hello(1, "another"))
    assert [rank["host"] for rank in maker.make()["ranks"].values()] == ["host", "host", "another", "another"]


def test_metrics_that_cannot_be_chosen_are_counted() -> None:
    job = a_job(2)
    maker = StateMaker(job)
    assert maker.whole()["head"]["metrics_note"] == ""
    job.apply(1, Metrics({f"m{number}": 1.0 for number in range(20)}, 1))
    state = maker.whole()
    assert len(state["metrics"]) == 12
    assert state["head"]["metrics_note"] == ""
    job.apply(1, Metrics({f"m{number}": 1.0 for number in range(308)}, 2))
    assert maker.whole()["head"]["metrics_note"] == "and 9 more; job.metrics has them all"


def test_a_rank_whose_bars_have_no_totals_is_done_once_it_has_returned() -> None:
    job = Job("train", 0, 2)
    job.status = Status.RUNNING
    job.apply(0, PhaseChanged(Phase.RUNNING))
    job.apply(0, Bar(0, n=5, description="working"))
    maker = StateMaker(job)
    state = maker.whole()
    assert [rank["done"] for rank in state["ranks"].values()] == [-1, -1]
    assert state["head"]["done"] == -1
    for rank in (0, 1):
        job.apply(rank, Returned())
    assert [rank["done"] for rank in maker.whole()["ranks"].values()] == [1000, -1]


def test_the_ranks_that_others_wait_for_are_marked() -> None:
    job = a_job(4)
    maker = StateMaker(job)

    def marks(*phases: Phase) -> list[str]:
        job.apply(None, Stalled([Location(rank, phase) for rank, phase in enumerate(phases)]))
        return [rank["mark"] for rank in maker.whole()["ranks"].values()]

    waiting, running, done = Phase.WAITING, Phase.RUNNING, Phase.DONE
    assert marks(waiting, running, waiting, waiting) == ["", "blocking others", "", ""]
    assert marks(waiting, done, waiting, done) == ["", "blocking others", "", "blocking others"]
    assert marks(waiting, waiting, waiting, waiting) == [""] * 4  # which of them is to blame is not known
    assert marks(running, running, running, running) == [""] * 4
    job.apply(None, Stalled([]))
    assert [rank["mark"] for rank in maker.whole()["ranks"].values()] == [""] * 4


def test_a_rank_that_waits_for_the_user_says_so_at_once_however_many_there_are() -> None:
    job = a_job(40)
    maker = StateMaker(job)
    maker.whole()
    job.apply(35, PhaseChanged(Phase.RUNNING, WAITS_FOR_INPUT))
    assert maker.make()["ranks"]["35"]["text"] == "waits for your input"
    job.apply(35, PhaseChanged(Phase.RUNNING))
    assert maker.make()["ranks"]["35"]["text"].startswith("epoch 1/4")


def test_choices_that_were_made_for_the_user_are_told() -> None:
    assert StateMaker(Job("train", 0, 2, notice="no GPU\nfew cores")).whole()["head"]["choices"] == "no GPU\nfew cores"


def test_a_job_that_goes_on_without_this_process_says_how_to_find_it() -> None:
    job = a_job(2)
    maker = StateMaker(job)
    assert maker.make()["head"]["kernel_lost_note"] == ""
    job.elsewhere = True
    assert f"attach('{job.id}')" in maker.make()["head"]["kernel_lost_note"]
    job.finish(Status.DONE)
    assert maker.make()["head"]["kernel_lost_note"] == ""


def test_the_browser_knows_the_same_fields() -> None:
    for source, target in GENERATE["MODELS"].items():
        assert (ROOT / target).read_text(encoding="utf-8") == GENERATE["model"](source), "run scripts/generate"


def test_fields_that_the_browser_draws_are_those_of_a_bar() -> None:
    told = {"depth", "description", "postfix", "closed"}
    assert told <= set(Bar.__dataclass_fields__)
    assert told <= set(get_type_hints(panel_model.Bar))


values = st.recursive(
    st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
)
objects = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


@given(objects, objects)
def test_a_patch_makes_the_old_state_into_the_new(old: dict[str, Any], new: dict[str, Any]) -> None:
    patch = json.loads(json.dumps(diff(old, new)))
    after = merged(old, patch)
    # Where there was something else before, a patch cannot tell an empty object from none at all: none is sent as such.
    assert after == new


@given(objects)
def test_of_what_has_not_changed_nothing_is_said(state: dict[str, Any]) -> None:
    assert diff(state, json.loads(json.dumps(state))) == {}


def test_the_head_tells_of_the_whole_job() -> None:
    head = StateMaker(a_job(4)).whole()["head"]
    assert (head["name"], head["devices"], head["status"]) == ("train()", "on 4 ranks · 2 × GPU", "running")
    assert (head["summary"], head["place"].split(" › ")[0]) == ("", "epoch 1/4")
    assert head["elapsed"] == "1:40 elapsed"
    assert (head["layout"], head["failed"], head["stopping"]) == ("rows", [], 0)


def test_a_rank_tells_all_that_it_unfolds_to() -> None:
    job = a_job(2)
    for number in range(300):
        job.apply(1, Lines("stdout", [f"line {number}"]))
    rank = StateMaker(job).whole()["ranks"]["1"]
    assert rank["text"] == "epoch 1/4 › batch 51/2000 › micro 2/7 70.0 it/s"
    assert rank["bars"]["1"]["amount"] == "51/2000"
    assert rank["bars"]["1"]["rate"] == "10.0 it/s"
    assert (rank["memory"], rank["usage"]) == ("512 MB, GPU 2.0 GB", "GPU 2.0 GB")
    assert list(rank["lines"].items())[-1] == ("299", "line 299")
    assert len(rank["lines"]) == 50


def test_a_bar_is_told_as_it_is_each_time() -> None:
    job = a_job(2)
    maker = StateMaker(job)

    def batches(state: panel_model.State) -> list[tuple[str, int]]:
        return [(rank["bars"]["1"]["amount"], rank["bars"]["1"]["done"]) for rank in state["ranks"].values()]

    assert batches(maker.whole()) == [("50/2000", 25), ("51/2000", 26)]
    for n in (500, 1000):
        for rank in range(2):
            move(job, rank, n)
        assert batches(maker.make()) == [(f"{n}/2000", n // 2)] * 2
    job.apply(0, Bar(1, n=2000, total=2000, description="batch", closed=True, depth=1))
    bar = maker.make()["ranks"]["0"]["bars"]["1"]
    assert (bar["done"], bar["closed"]) == (1000, True)


def test_a_new_line_does_not_send_the_others_again() -> None:
    job = a_job(1)
    job.apply(0, Lines("stdout", ["one"]))
    maker = StateMaker(job)
    before = maker.whole()
    job.apply(0, Lines("stdout", ["two"]))
    assert diff(before, maker.make())["ranks"]["0"]["lines"] == {"1": "two"}


def test_words_for_terminals_are_told_as_words_and_long_ones_say_that_they_are_cut() -> None:
    job = a_job(1)
    link = "\x1b]8;;https://x.org\x1b\\here\x1b]8;;\x1b\\"
    job.apply(0, Lines("stderr", [f"\x1b[1;31mred\x1b[0m {link}\x07 \t|"]))
    job.apply(0, Lines("stdout", ["x" * 1000]))
    job.apply(0, Failed([Raised("E", "\x1b[31mE\x1b[0m: no\nmore", [])], at=1.0))
    rank = StateMaker(job).whole()["ranks"]["0"]
    assert list(rank["lines"].values()) == ["red here \t|", "x" * 299 + "…"]
    assert rank["error"] == "E: no"


@pytest.mark.parametrize("text", ["\x1b]", "\x1b[", "\x1b]8;;", "\x1b ", "\x1b"])
def test_a_flood_of_words_for_terminals_is_told_in_time(text: str) -> None:
    job = a_job(1)
    job.apply(0, Lines("stdout", [text * 32_000]))
    began = time.process_time()
    StateMaker(job).whole()
    assert time.process_time() - began < 2


def a_stall(job: Job, depth: int) -> Stalled:
    frames = [Frame("In[3]", number, "train", f"call_{number}()") for number in range(depth)]
    ranks = range(len(job.ranks))
    return Stalled([Location(rank, Phase.WAITING, "barrier", "In[3] line 5", frames) for rank in ranks], job.started)


def test_a_rank_of_a_job_that_has_stalled_tells_its_stack_until_it_goes_on() -> None:
    job = a_job(2)
    maker = StateMaker(job)
    state = maker.whole()
    assert (state["ranks"]["1"]["stack"], state["head"]["time_left"], state["ranks"]["1"]["time_left"]) == (
        "",
        "29 s",
        "29 s",
    )
    job.apply(None, a_stall(job, 2))
    state = maker.make()
    rank = state["ranks"]["1"]
    assert (state["head"]["time_left"], rank["time_left"]) == ("", "")  # nobody knows
    assert rank["text"] == "epoch 1/4 › batch 51/2000 › micro 2/7"  # and the rates are those of before
    assert {(bar["rate"], bar["time_left"]) for bar in rank["bars"].values()} == {("", "")}
    assert state["ranks"]["1"]["stack"] == "In[3] line 0 in train: call_0()\nIn[3] line 1 in train: call_1()"
    assert state["head"]["note"].endswith("in another group. Expand a rank to see its Python stack.")
    job.apply(None, Stalled(()))
    assert maker.make()["ranks"]["1"]["stack"] == ""
    job.apply(None, Stalled([Location(0, Phase.WAITING), Location(1, Phase.WAITING)], job.started))
    assert "Unfold" not in maker.make()["head"]["note"]


def test_of_deep_stacks_of_many_ranks_the_innermost_frames_are_told() -> None:
    job = a_job(64)
    job.apply(None, a_stall(job, 40))
    first, *frames = StateMaker(job).whole()["ranks"]["63"]["stack"].splitlines()
    assert first == "…"
    assert 10 < len(frames) < 40
    assert frames[-1] == "In[3] line 39 in train: call_39()"


def test_what_is_no_number_can_be_told() -> None:
    job = a_job(1)
    job.apply(0, Metrics({"loss": float("nan"), "best": float("inf")}, 60))
    state = StateMaker(job).whole()
    assert state["metrics"]["loss"]["range"] == ""
    assert state["ranks"]["0"]["values"] == {"loss": "nan", "best": "inf"}
    json.dumps(state, allow_nan=False)


def test_charts_and_rows_are_of_one_moment() -> None:
    job = a_job(2)
    pacer = Pacer(0.0, 1e9)
    maker = StateMaker(job, pacer)
    maker.whole()
    for step, is_due in ((100, True), (101, False)):
        for rank in range(2):
            job.apply(rank, Metrics({"loss": float(step), "lr": step / 1000, "norm": 2.0 * step}, step))
        pacer.is_due = lambda is_due=is_due: is_due  # type: ignore[method-assign]
        maker.update_metrics()
        state = maker.make()
        shown = {name: drawn["now"] for name, drawn in state["metrics"].items()}
        assert shown == {"loss": "100", "lr": "0.1", "norm": "200"}
        assert [state["ranks"][rank]["values"] for rank in ("0", "1")] == [shown, shown]


@pytest.mark.parametrize("value", [3.0, 0.0, -1e-12, 6e23, 5e-324])
def test_a_metric_that_never_changes_keeps_its_value(value: float) -> None:
    job = a_job(2)
    for step in range(2):
        for rank in range(2):
            job.apply(rank, Metrics({"rate": value}, step))
    metric = StateMaker(job).whole()["metrics"]["rate"]
    assert (metric["x"], metric["mean"], metric["low"], metric["high"]) == ([0, 1], [value, value], [], [])


def test_a_chart_has_few_points_with_few_digits() -> None:
    job = a_job(2)
    for step in range(400):
        for rank in range(2):
            job.apply(rank, Metrics({"norm": 1e6 + step**0.5}, 100 + step))
    metric = StateMaker(job).whole()["metrics"]["norm"]
    assert 10 < len(metric["x"]) <= 61
    assert (metric["x"][0], metric["x"][-1]) == (100, 499)
    assert metric["mean"][0] == 1e6
    assert max(len(str(number)) for number in metric["mean"]) <= len("1000000.000")


def test_the_user_chooses_the_charts() -> None:
    job = a_job(2)
    maker = StateMaker(job, Pacer(0.0, 1e9))
    job.apply(1, Metrics({f"m{number}": 1.0 for number in range(20)}, 1))
    assert maker.whole()["head"]["metric_names"] == ["loss", *(f"m{number}" for number in range(20))]
    maker.request({"cmd": "charts", "metrics": ["m15", "loss", "no such metric"]})
    maker.update_metrics()
    assert list(maker.make()["metrics"]) == ["m15", "loss"]


def test_a_rank_that_fails_tells_why_at_once() -> None:
    job = a_job(64)
    maker = StateMaker(job)
    maker.whole()
    job.apply(40, Failed([Raised("ValueError", "ValueError: no", [])], at=2.0))
    job.apply(9, Failed([Raised("ValueError", "ValueError: neither", [])], at=3.0))
    state = maker.make()
    assert state["head"]["failed"] == [40, 9]
    assert state["ranks"]["40"]["error"] == "ValueError: no"


def test_every_rank_is_told_in_full_in_its_turn() -> None:
    job = a_job(64)
    maker = StateMaker(job)
    before = maker.whole()
    for rank in range(64):
        move(job, rank, 500)
    told: set[str] = set()
    for _ in range(8):
        state = maker.make()
        told |= {rank for rank in state["ranks"] if "text" in diff(before, state).get("ranks", {}).get(rank, {})}
        before = state
    assert len(told) == 64


def test_how_far_each_rank_is_is_told_every_time() -> None:
    job = a_job(64)
    maker = StateMaker(job)
    before = {rank["done"] for rank in maker.whole()["ranks"].values()}
    for rank in range(64):
        move(job, rank, 1900)
    after = {rank["done"] for rank in maker.make()["ranks"].values()}
    assert before == {250, 260}
    assert after == {480}


def test_of_many_ranks_little_is_said_at_a_time() -> None:
    job = a_job(64)
    maker = StateMaker(job)
    before = maker.whole()
    sizes = []
    for n in range(200, 220):
        for rank in range(64):
            move(job, rank, n)
        state = maker.make()
        sizes.append(len(json.dumps(diff(before, state), separators=(",", ":"))))
        before = state
    assert sum(sizes) / len(sizes) < 5000


def test_a_job_that_is_to_end_says_for_whom_it_waits() -> None:
    job = a_job(3)
    job.stopping = 1
    job.apply(1, Exited(0))
    assert StateMaker(job).whole()["head"]["note"].startswith("Waiting up to 5 s for ranks 0,2 to exit on their own")
