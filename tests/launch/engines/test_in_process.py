"""A rank on a thread of this process, where the system refuses threads."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from notebook_accel import notebook_launcher
from notebook_accel.errors import LaunchError
from tests.launch.own_processes import descriptors
from tests.live_notebook import wait_until


def meet() -> tuple[float, int]:
    import torch
    import torch.distributed as dist

    total = torch.ones(1)
    dist.init_process_group("gloo")
    dist.all_reduce(total)
    dist.barrier()
    with socket.socket() as client:
        assert client.connect_ex((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))), "something listens"
    return float(total), dist.get_world_size()


def meet_twice() -> list[tuple[float, int]]:
    import torch.distributed as dist

    first = meet()
    dist.destroy_process_group()
    return [first, meet()]


def answer() -> int:
    return 42


def test_a_launch_that_gets_no_thread_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        if thread.name == "notebook-accel-rank":
            raise RuntimeError("can't start new thread")
        start(thread)

    assert notebook_launcher(answer, in_process=True) == [42]
    before, start = descriptors(), threading.Thread.start
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        with pytest.raises(LaunchError, match="needs a thread: can't start new thread"):
            notebook_launcher(answer, in_process=True)
    wait_until(lambda: not any(thread.name == "notebook-accel-rank" for thread in threading.enumerate()))
    wait_until(lambda: descriptors() <= before)  # the rank's other thread ends last
    assert notebook_launcher(answer, in_process=True) == [42]


def test_a_rank_joins_groups_without_a_port() -> None:
    before = descriptors()
    assert notebook_launcher(meet_twice, in_process=True) == [[(1.0, 1), (1.0, 1)]]
    assert notebook_launcher(meet, in_process=True) == [(1.0, 1)]
    wait_until(lambda: descriptors() <= before)
