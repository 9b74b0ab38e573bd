"""What the panel's buttons request, and how often."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from notebook_accel.events import AttemptStarted, Metrics, RuleChanged
from notebook_accel.launch.job import requests
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.requests import Answers
from notebook_accel.launch.job.rules import when
from notebook_accel.panel.panel_controls import PanelControls


@pytest.mark.parametrize("action", ["pause", "checkpoint"])
def test_a_second_click_requests_nothing_while_the_first_is_not_done(
    action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    may_end, is_called = threading.Event(), threading.Semaphore(0)

    def call(_: Job) -> None:
        calls.append(action)
        is_called.release()
        assert may_end.wait(20)

    monkeypatch.setattr(Job, action, call)
    job = Job("train", 0, 1)
    job.status = Status.RUNNING
    controls = PanelControls(job)
    controls.request({"cmd": "control", "action": action})
    controls.request({"cmd": "control", "action": action})
    assert is_called.acquire(timeout=20)
    assert controls.state()["feedback"]
    may_end.set()
    for thread in threading.enumerate():
        if thread.name == "panel control":
            thread.join(20)
    assert calls == [action]
    assert not controls.state()["feedback"]
    controls.request({"cmd": "control", "action": action})  # the first is done
    assert is_called.acquire(timeout=20)


@pytest.mark.parametrize(("action", "method"), [("pause", "pause"), ("flamegraph", "flamegraph")])
def test_a_button_works_again_after_the_system_has_refused_its_thread(
    action: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    is_called = threading.Event()
    monkeypatch.setattr(Job, method, lambda *_: is_called.set())
    job = Job("train", 0, 1)
    job.status = Status.RUNNING
    controls = PanelControls(job)
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        controls.request({"cmd": "control", "action": action})
    assert "needs a thread: can't start new thread" in controls.state()["feedback"]
    assert not controls.is_inspecting
    controls.request({"cmd": "control", "action": action})
    assert is_called.wait(20)


@pytest.fixture
def ruled(monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job whose driver answers at once."""

    def answer(job: Job, event: RuleChanged, *_: object) -> Answers:
        number = event.number or len(job.rule_changes) + 1
        job.apply(None, replace(event, number=number))
        return Answers({0: replace(event, number=number)}, [])

    monkeypatch.setattr(requests, "replies", answer)
    job = Job("train", 0, 1)
    job.apply(None, AttemptStarted(0))
    return job


def stop_when(controls: PanelControls, text: str) -> tuple[str, str]:
    """What the field has, and the feedback, after a text was set."""
    controls.request({"cmd": "control", "action": "stop when", "name": "Stop when", "value": text})
    for thread in threading.enumerate():
        if thread.name == "panel control":
            thread.join(20)
    state = controls.state()
    return next((field["value"] for field in state["fields"]), ""), state["feedback"]


def test_conditions_that_stop_the_job_are_what_the_field_says(ruled: Job) -> None:
    controls = PanelControls(ruled)
    assert controls.state()["fields"] == [], "nothing is reported yet"
    ruled.apply(0, Metrics({"loss": 1.0}, 1))
    assert [field["value"] for field in controls.state()["fields"]] == [""]
    ruled.begin_with([when("acc", patience=3, mode="max", do="stop"), when("loss", above=0.1234567890123, do="stop")])
    ruled.add_rule(when("loss", is_nan=True, do="pause"))
    assert controls.state()["fields"][0]["value"] == "loss > 0.1234567890123"
    said = "loss > 0.1234567890123 or val/loss is NaN for 2 steps or acc < 10"
    assert stop_when(controls, " loss >0.1234567890123 or val/loss is nan for 2 steps   or acc<1e1") == (said, "")
    assert stop_when(controls, said) == (said, "")
    assert len(ruled.rules) == 5, "none was made twice"
    assert stop_when(controls, "acc < 10")[0] == "acc < 10"
    assert stop_when(controls, "")[0] == ""
    assert list(ruled.rules.values()) == ["if acc has not improved for 3 reports: stop", "if loss is NaN: pause"]


@pytest.mark.parametrize("text", ["loss", "loss >", "> 3", "loss >= 3", "loss > x", "loss > 3 or ", "loss > nan"])
def test_what_is_no_condition_is_refused_and_changes_nothing(ruled: Job, text: str) -> None:
    ruled.apply(0, Metrics({"loss": 1.0}, 1))
    controls = PanelControls(ruled)
    stop_when(controls, "loss > 5")
    value, feedback = stop_when(controls, text)
    assert value == "loss > 5"
    assert "is not a condition that can stop the job" in feedback
