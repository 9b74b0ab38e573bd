"""Launches that wait until GPUs are free, on machines with GPUs that are not there; their ranks use none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from notebook_accel import hardware, map_on_ranks, notebook_launcher
from notebook_accel.errors import ConfigurationError, JobCancelledError, LaunchError
from notebook_accel.hardware import DeviceUse
from notebook_accel.hardware.nvidia import NvmlProbe
from notebook_accel.jupyter.reader.job_row import row
from notebook_accel.launch.driver import detach, device_line
from notebook_accel.launch.driver.detached_main import JobOrder
from notebook_accel.launch.driver.launch import Launch
from notebook_accel.launch.job import describe
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.journal import records
from notebook_accel.launch.system import own_process
from tests.hardware.fakes import FakeGpu, FakeNvml
from tests.live_notebook import wait_until

HELD: dict[str, DeviceUse] = {}
DETECT = hardware.detect


def with_gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> list[str]:
    found = DETECT({}, NvmlProbe(lambda: FakeNvml([FakeGpu("NVIDIA H100", 80 << 30)] * count)))
    monkeypatch.setattr(hardware, "detect", lambda *_: found)
    monkeypatch.setattr(hardware, "memory_use", lambda: dict(HELD))
    monkeypatch.setattr(device_line, "LOOK", 0.05)
    HELD.clear()
    return [gpu.uuid for gpu in found.gpus]


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return with_gpus(monkeypatch, 2)


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch, two_gpus: list[str]) -> list[str]:
    return with_gpus(monkeypatch, 4)


def until(path: str) -> str:
    """On a rank: runs until a file is there."""
    import os
    import time

    while not os.path.exists(path):
        time.sleep(0.01)
    return path


def visible_until(path: str) -> str:
    """On a rank: runs until a file is there, and returns the GPUs that it can use."""
    import os

    until(path)
    return os.environ["CUDA_VISIBLE_DEVICES"]


def launch(path: Path, gpus: list[int] | None = None, run: Callable[[str], str] = until, **options: Any) -> Job:
    job: Job = notebook_launcher(run, (str(path),), gpus=gpus, block=False, name=path.name, **options)
    return job


def has_begun(job: Job) -> Callable[[], bool]:
    return lambda: any(state.pid for state in job.ranks)


def test_jobs_that_wait_start_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    first = launch(tmp_path / "first", [0])
    assert first.id in [record.id for record in records.unended_records()], "the next launch finds it"
    wait_until(has_begun(first))
    second = launch(tmp_path / "second", [0, 1], wait="free")
    wait_until(lambda: second.awaits.startswith("for first"))
    third = launch(tmp_path / "third", [1], wait="free")
    wait_until(lambda: third.awaits.startswith("for second"))
    other = row(second)
    assert (other["state"], other["note"]) == ("waiting", "waiting for first of this process")
    assert describe.headline(second) == "second on 2 ranks: waiting for first of this process"
    assert second.notice == "", "it doesn't run beside the other job"
    with pytest.raises(
        ConfigurationError, match=r"second waits for first of this process, so it can't be paused: call"
    ):
        second.pause()
    (tmp_path / "first").touch()
    wait_until(has_begun(second))
    assert second.awaits == ""
    assert not has_begun(third)()
    (tmp_path / "second").touch()
    (tmp_path / "third").touch()
    assert (first.result(), third.result()) == ([str(tmp_path / "first")], [str(tmp_path / "third")])


def test_memory_that_other_processes_hold_is_waited_for(tmp_path: Path, two_gpus: list[str]) -> None:
    HELD.update({two_gpus[0]: DeviceUse(3 << 20), two_gpus[1]: DeviceUse(60 << 30, {1: 60 << 30})})
    (tmp_path / "done").touch()
    assert launch(tmp_path / "done", [0], wait="free").result() == [str(tmp_path / "done")]
    job = launch(tmp_path / "done", [0, 1], wait="free")
    wait_until(lambda: job.awaits == "for GPU 1, where processes hold 60.0 GB")
    HELD.clear()
    assert job.result() == [str(tmp_path / "done")] * 2


def test_a_job_whose_thread_cannot_be_started_is_no_longer_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise LaunchError("no more threads")

    monkeypatch.setattr(own_process, "start_thread", refuse)
    before = records.unended_records()
    with pytest.raises(LaunchError, match="no more threads"):
        launch(tmp_path / "never", [0])
    assert records.unended_records() == before


def test_any_gpus_that_are_free_are_taken(tmp_path: Path, four_gpus: list[str]) -> None:
    HELD[four_gpus[1]] = DeviceUse(60 << 30)
    first = launch(tmp_path / "first", [0], run=visible_until)
    wait_until(has_begun(first))
    second = launch(tmp_path / "second", run=visible_until, num_processes=2, wait="free")
    wait_until(has_begun(second))
    assert second.devices == tuple(four_gpus[2:])
    assert (second.hardware, second.notice) == ("2 × NVIDIA H100", "")
    third = launch(tmp_path / "third", run=visible_until, num_processes=2, wait="free")
    wait_until(lambda: third.awaits == "for 2 of 4 GPUs, after first of this process and 1 other job")
    assert row(third)["devices"] == {}, "it has none yet"
    fourth = launch(tmp_path / "fourth", run=visible_until, num_processes=1, wait="free")
    wait_until(lambda: fourth.awaits == "for 1 of 4 GPUs, after first of this process and 2 other jobs")
    HELD.clear()
    (tmp_path / "first").touch()
    wait_until(has_begun(third))
    assert third.devices == tuple(four_gpus[:2])
    for name in ("second", "third", "fourth"):
        (tmp_path / name).touch()
    assert [job.result() for job in (first, second, third)] == [["0"], ["2,3"] * 2, ["0,1"] * 2]
    assert len(fourth.result()) == 1


def test_what_holds_gpus_is_named_while_too_few_of_them_are_free(tmp_path: Path, four_gpus: list[str]) -> None:
    HELD.update({uuid: DeviceUse(60 << 30) for uuid in four_gpus[:3]})
    job = launch(tmp_path / "done", run=visible_until, num_processes=2, wait="free", max_restarts=1, min_processes=1)
    wait_until(lambda: job.awaits == "for 2 of 4 GPUs, such as GPU 0, where processes hold 60.0 GB and 2 other GPUs")
    del HELD[four_gpus[1]]
    (tmp_path / "done").touch()
    assert job.result() == ["1,3"] * 2


def test_a_gpu_for_one_process_is_waited_for_however_little_memory_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = DETECT({}, NvmlProbe(lambda: FakeNvml([FakeGpu("NVIDIA H100", 80 << 30, mode=3)])))
    uuid = found.gpus[0].uuid
    monkeypatch.setattr(hardware, "detect", lambda *_: replace(found, exclusive_holders={0: 1}))
    HELD[uuid] = DeviceUse(1 << 20, {1: 1 << 20})
    (tmp_path / "done").touch()
    job = launch(tmp_path / "done", [0], wait="free")
    wait_until(lambda: job.awaits.startswith("for GPU 0, where processes hold 1 MB"))
    HELD.clear()
    assert job.result() == [str(tmp_path / "done")]


def uses(item: int) -> tuple[int, str]:
    """On a rank of a map: the GPUs that it can use."""
    import os

    return item, os.environ["CUDA_VISIBLE_DEVICES"]


def test_a_map_waits_as_well(four_gpus: list[str]) -> None:
    HELD.update({uuid: DeviceUse(60 << 30) for uuid in four_gpus[:3]})
    job = map_on_ranks(uses, range(4), num_processes=2, wait="free", block=False)
    wait_until(lambda: job.awaits.startswith("for 2 of 4 GPUs, such as GPU 0"))
    del HELD[four_gpus[1]]
    assert job.result() == [(item, "1,3") for item in range(4)]


def on_four_gpus(held: str, make: Callable[..., Launch], *args: Any, **options: Any) -> Launch:
    """PROCESS driver: makes a launch where processes hold GPU 0 until a file is gone."""
    found = DETECT({}, NvmlProbe(lambda: FakeNvml([FakeGpu("NVIDIA H100", 80 << 30)] * 4)))
    hardware.detect = lambda *_: found
    hardware.memory_use = lambda: {found.gpus[0].uuid: DeviceUse(60 << 30)} if Path(held).exists() else {}
    device_line.LOOK = 0.05
    return make(*args, **options)


def test_a_detached_job_waits_in_a_process_of_its_own(
    tmp_path: Path, four_gpus: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Takes seconds: each such process starts a server."""

    def order(*given: Any) -> JobOrder:
        found = JobOrder(*given)
        return replace(found, make=partial(on_four_gpus, str(tmp_path / "held"), found.make))

    monkeypatch.setattr(detach, "JobOrder", order)
    (tmp_path / "held").touch()
    waiting: dict[str, Any] = {"wait": "free", "detach": True, "gpus": [0, 1]}
    first: Job = notebook_launcher(visible_until, (str(tmp_path / "done"),), name="first", **waiting)
    wait_until(lambda: first.awaits == "for GPU 0, where processes hold 60.0 GB")
    second: Job = map_on_ranks(uses, range(4), name="second", **waiting)
    wait_until(lambda: second.awaits == "for first of another process")
    assert not has_begun(first)()
    (tmp_path / "held").unlink()
    wait_until(has_begun(first))
    assert not has_begun(second)()
    (tmp_path / "done").touch()
    assert first.result() == ["0,1"] * 2
    assert second.result() == [(item, "0,1") for item in range(4)]


def test_a_job_in_line_can_be_cancelled(tmp_path: Path, two_gpus: list[str]) -> None:
    HELD[two_gpus[0]] = DeviceUse(60 << 30)
    job = launch(tmp_path / "never", [0], wait="free")
    wait_until(lambda: bool(job.awaits))
    job.cancel()
    with pytest.raises(JobCancelledError):
        job.result()
    assert not has_begun(job)()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"wait": "free", "gpus": 2}, "for 2 GPUs, pass num_processes=2; with wait='free', any that are free"),
        ({"wait": "long"}, "wait='long' is unknown; choose one of 'no', 'free'"),
        ({"wait": "free", "device": "cpu"}, "waits for GPUs, but these ranks run on device='cpu'"),
        ({"wait": "free", "num_nodes": 2}, "looks at the GPUs of this machine only"),
    ],
)
def test_what_cannot_be_waited_for_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        notebook_launcher(until, ("",), **options)
