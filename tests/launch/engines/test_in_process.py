"""A rank on a thread of this process, where the system refuses threads."""

from __future__ import annotations

import threading

import pytest

from notebook_accel import notebook_launcher
from notebook_accel.errors import LaunchError
from tests.launch.own_processes import descriptors, wait_until


def answer() -> int:
    return 42


@pytest.mark.parametrize("refused", ["notebook-accel-rank", "notebook-accel-store"])
def test_a_launch_that_gets_no_thread_leaves_nothing_behind(refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        if thread.name == refused:
            raise RuntimeError("can't start new thread")
        start(thread)

    assert notebook_launcher(answer, in_process=True) == [42]
    before, start = descriptors(), threading.Thread.start
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        with pytest.raises(LaunchError, match="needs a thread: can't start new thread"):
            notebook_launcher(answer, in_process=True)
    assert wait_until(lambda: not any(thread.name == "notebook-accel-rank" for thread in threading.enumerate()))
    assert wait_until(lambda: descriptors() <= before), "the rank's other thread ends last"
    assert notebook_launcher(answer, in_process=True) == [42]
