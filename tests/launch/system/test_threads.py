"""Threads that the system refuses."""

from __future__ import annotations

import threading

import pytest

from notebook_accel.errors import LaunchError
from notebook_accel.launch.system import threads


def test_a_thread_runs() -> None:
    has_run = threading.Event()
    threads.start(has_run.set, "test")
    assert has_run.wait(30)


def test_a_thread_that_is_refused_is_told_with_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(LaunchError, match=r"needs a thread: can't start new thread: .* or raise the limit\.$"):
        threads.start(int, "test")
