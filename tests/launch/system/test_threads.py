"""Threads that the system refuses."""

from __future__ import annotations

import contextvars
import threading

import pytest

from notebook_accel.errors import LaunchError
from notebook_accel.launch.system import own_process


def test_a_thread_runs() -> None:
    has_run = threading.Event()
    own_process.start_thread(has_run.set, "test")
    assert has_run.wait(30)


def test_a_thread_has_the_context_of_who_starts_it() -> None:
    cell: contextvars.ContextVar[str] = contextvars.ContextVar("cell", default="none")
    found: list[str] = []
    has_run = threading.Event()

    def run() -> None:
        found.append(cell.get())
        has_run.set()

    def start() -> None:
        cell.set("In[3]")
        own_process.start_thread(run, "test")

    contextvars.copy_context().run(start)
    assert has_run.wait(30)
    assert found == ["In[3]"]


def test_a_thread_that_is_refused_is_told_with_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(LaunchError, match=r"needs a thread: can't start new thread: .* or raise the limit\.$"):
        own_process.start_thread(int, "test")


def test_work_that_can_do_without_a_thread_learns_that_none_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        assert own_process.start_thread_if_allowed(int, "test") is None
    thread = own_process.start_thread_if_allowed(int, "test")
    assert thread is not None
    thread.join()
