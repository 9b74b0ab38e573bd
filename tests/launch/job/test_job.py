"""What waits for a job."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from notebook_accel.errors import ConfigurationError
from notebook_accel.events import Controlled, Profiled, to_wire
from notebook_accel.events.control import TUNE
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.requests import RankRequest, Replies
from notebook_accel.launch.show import console
from notebook_accel.launch.show.console import NoView
from notebook_accel.launch.show.job_views import Views


def interrupted(event: threading.Event, timeout: float | None = None) -> bool:
    raise KeyboardInterrupt


def test_an_interrupt_of_the_wait_says_that_the_job_keeps_running(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job("train", 0, 1)
    shortened: list[BaseException] = []
    monkeypatch.setattr(console.current, "shorten_traceback", shortened.append)
    Views(job, NoView)
    monkeypatch.setattr(threading.Event, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"train\(\).*keeps running.*cancel\(\)") as raised:
        job.result()
    assert shortened == [raised.value]


def test_what_waits_too_long_shows_no_internal_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job("train", 0, 1)
    shortened: list[BaseException] = []
    monkeypatch.setattr(console.current, "shorten_traceback", shortened.append)
    Views(job, NoView)
    with pytest.raises(TimeoutError, match="still starting") as first:
        job.result(0)
    job.runner.request_ranks = lambda request, then: then({0: Profiled(1, error="no step ended", is_late=True)})
    with pytest.raises(TimeoutError, match="no step ended") as second:
        job.profile()
    assert shortened == [first.value, second.value]


@pytest.mark.parametrize("method", ["wait", "result", "stacks"])
@pytest.mark.parametrize("timeout", ["x", float("nan"), True, [1]])
def test_a_time_that_is_not_a_number_of_seconds_is_refused(method: str, timeout: Any) -> None:
    with pytest.raises(ConfigurationError, match="timeout must be a number of seconds"):
        getattr(Job("train", 0, 1), method)(timeout)


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        ("pause", {"timeout": 0}, "timeout must be a number of seconds above 0 and at most 3600, not 0"),
        ("profile", {"timeout": 4000}, "timeout must be a number of seconds above 0 and at most 3600, not 4000"),
        ("flamegraph", {"seconds": "5"}, "seconds must be a number of seconds above 0 and at most 600, not '5'"),
        ("flamegraph", {"rate": True}, "rate must be a number of samples per second above 0 and at most 1000, not Tr"),
        ("tune", {"lr": float("nan")}, "lr=nan is not a finite number"),
    ],
)
def test_a_number_that_is_out_of_range_is_refused(method: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{message}"):
        getattr(Job("train", 0, 1), method)(**arguments)


def test_numbers_of_numpy_are_taken() -> None:
    job = Job("train", 0, 1)
    sent: list[RankRequest] = []

    def request(request: RankRequest, then: Callable[[Replies], object]) -> None:
        sent.append(request)
        then({0: Controlled(1, TUNE, 3)})

    job.runner.request_ranks = request
    assert job.tune(lr=np.float32(0.5), batch=np.int64(8), timeout=np.float32(60)) == 3
    header, _ = to_wire(sent[0].event)
    assert json.loads(json.dumps(header))["values"] == {"lr": 0.5, "batch": 8}
    assert job.wait(np.float32(0)) is False


@pytest.mark.parametrize("timeout", [float("inf"), 10**400])
def test_a_job_that_has_ended_can_be_awaited_for_any_time(timeout: float) -> None:
    job = Job("train", 0, 1)
    job.finish(Status.DONE)
    assert job.wait(timeout)


@pytest.mark.parametrize("method", ["profile", "flamegraph", "collectives", "pause"])
def test_an_interrupt_of_a_request_to_ranks_says_so(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    job = Job("train", 0, 1)
    shortened: list[BaseException] = []
    monkeypatch.setattr(console.current, "shorten_traceback", shortened.append)
    Views(job, NoView)

    def request(request: RankRequest, then: Callable[[Replies], object]) -> None:
        raise KeyboardInterrupt

    job.runner.request_ranks = request
    with pytest.raises(
        KeyboardInterrupt, match=rf"job\.{method}\(\) was interrupted; train\(\) keeps running"
    ) as raised:
        getattr(job, method)()
    assert shortened == [raised.value]
