"""What waits for a job."""

from __future__ import annotations

import threading

import pytest

from notebook_accel.launch.job.job import Job
from notebook_accel.launch.show import front_end
from notebook_accel.launch.show.front_end import NoView
from notebook_accel.launch.show.job_views import Views


def interrupted(event: threading.Event, timeout: float | None = None) -> bool:
    raise KeyboardInterrupt


def test_an_interrupt_of_the_wait_says_that_the_job_keeps_running(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job("train", 0, 1)
    shortened: list[BaseException] = []
    monkeypatch.setattr(front_end.current, "shorten_traceback", shortened.append)
    Views(job, NoView)
    monkeypatch.setattr(threading.Event, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"train\(\).*keeps running.*cancel\(\)") as raised:
        job.result()
    assert shortened == [raised.value]
