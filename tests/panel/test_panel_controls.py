"""What the panel's buttons request, and how often."""

from __future__ import annotations

import threading

import pytest

from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
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
