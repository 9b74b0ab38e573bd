"""What ranks use is read while somebody looks at the job, once for all ranks."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from notebook_accel.events import AttemptStarted, GpuUsage, Hello, Phase, PhaseChanged, ProcessUsage
from notebook_accel.hardware.amd import AmdSensors
from notebook_accel.hardware.device_probe import Sensors
from notebook_accel.hardware.nvidia import NvmlSensors
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.show import console, usage_watch
from notebook_accel.launch.show.job_views import Views
from notebook_accel.launch.show.usage_watch import UsageWatch
from tests.hardware.fakes import FakeGpu, FakeNvml, amd_smi, write_amd_files
from tests.hardware.rows import change_row


def a_job(*hosts: str, devices: tuple[str, ...] = ()) -> Job:
    """A job whose ranks are this process."""
    job = Job("train", 0, len(hosts), devices=devices)
    job.started -= 10
    job.apply(None, AttemptStarted(0))
    for rank, host in enumerate(hosts):
        job.apply(rank, Hello(os.getpid(), host or socket.gethostname()))
        job.apply(rank, PhaseChanged(Phase.RUNNING))
    return job


def read(watch: UsageWatch, until: Callable[[], object]) -> None:
    while not until():
        watch.refresh(True)
        time.sleep(0.005)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_watch, "INTERVAL", 0.01)
    monkeypatch.setattr(usage_watch, "SHARE", 1.0)


def test_gpus_are_read_for_each_rank_by_its_device_and_closed_at_the_end() -> None:
    library = FakeNvml([FakeGpu("H100", 80 << 30, utilization=use, errors=replays(9)) for use in (11, 22)])
    first, second = NvmlSensors(lambda: library).read()
    job = a_job("", "", "", devices=(second, first))  # the third rank shares the first device
    watch = UsageWatch(job, lambda: [NvmlSensors(lambda: library)])
    read(watch, lambda: job.ranks[2].gpu)
    assert [state.gpu and state.gpu.utilization for state in job.ranks] == [22, 11, 22]
    assert job.ranks[0].gpu is not None
    assert job.ranks[0].gpu.errors == {}  # those from before the job are not its concern
    library.change(1, errors=replays(12))
    read(watch, lambda: job.ranks[0].gpu and job.ranks[0].gpu.errors)
    assert (job.ranks[0].gpu.errors, job.ranks[1].gpu and job.ranks[1].gpu.errors) == ({"PCIe replays": 3}, {})
    watch.close()
    library.nvmlShutdown()  # that of the first line
    assert not library.is_open


def test_the_rows_of_ranks_on_amd_gpus_are_read_through_amdsmi(tmp_path: Path) -> None:
    gpus = [FakeGpu("AMD Instinct MI300X", 192 << 30, {7: used << 30}, utilization=used) for used in (11, 22)]
    write_amd_files(tmp_path, [FakeGpu("AMD Instinct MI300X", 192 << 30)] * 2)
    job = a_job("", "", devices=("GPU-00000000000000a1", "GPU-00000000000000a0"))
    watch = UsageWatch(job, lambda: [AmdSensors(tmp_path, amd_smi(*gpus))])
    read(watch, lambda: job.ranks[1].gpu)
    watch.close()
    shown = [state.gpu and (state.gpu.utilization, state.gpu.memory_used, state.gpu.power) for state in job.ranks]
    assert shown == [(22, 22 << 30, 70), (11, 11 << 30, 70)]


def replays(count: int) -> dict[str, int]:
    return {"NVML_FI_DEV_PCIE_REPLAY_COUNTER": count}


def test_processes_of_this_machine_are_read_while_they_run() -> None:
    job = a_job("", "another machine", "")
    job.apply(2, PhaseChanged(Phase.DONE))
    watch = UsageWatch(job, list)
    read(watch, lambda: job.ranks[0].process)
    watch.close()
    assert job.ranks[0].process is not None
    assert job.ranks[0].process.resident > 2**20
    assert (job.ranks[1].process, job.ranks[2].process) == (None, None)


def test_nothing_is_read_while_nobody_looks() -> None:
    job = a_job("")
    opened: list[Sensors] = []
    watch = UsageWatch(job, lambda: opened)
    for _ in range(5):
        watch.refresh(False)
        assert not any(thread.name == "notebook-accel usage" for thread in threading.enumerate())
    watch.close()
    views = Views(job, console.NoView)
    assert not views.is_seen
    views.finish()


def test_a_driver_that_fails_ends_the_reading_and_nothing_else(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    change_row(monkeypatch, "cuda", sensors=fail)
    views = Views(a_job(""), Seen)
    shown = ""
    while not shown:
        views.refresh()
        shown = capsys.readouterr().err
    assert shown == "what the ranks of train() use can't be read: OSError: the driver is gone\n"
    views.refresh()
    assert views.is_seen
    views.finish()
    assert capsys.readouterr().err == ""


def test_a_limit_of_threads_costs_readings_and_nothing_else(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = a_job("")
    views = Views(job, Seen)
    refused: list[threading.Thread] = []

    def refuse(thread: threading.Thread) -> None:
        refused.append(thread)
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        while len(refused) < 2:
            views.refresh()
    while job.ranks[0].process is None:
        views.refresh()
    views.finish()
    assert capsys.readouterr().err == ""


class Seen(console.NoView):
    is_seen = True


def fail() -> Sensors:
    raise OSError("the driver is gone")


def test_what_is_read_is_part_of_the_state_that_other_processes_show() -> None:
    job = a_job("")
    job.apply(0, ProcessUsage(98, 2**20))
    job.apply(0, GpuUsage(50))
    kinds = ProcessUsage, GpuUsage
    assert [event for _, event in job.events() if isinstance(event, kinds)] == [ProcessUsage(98, 2**20), GpuUsage(50)]


def test_the_devices_of_a_later_attempt_count() -> None:
    job = a_job("", "", devices=("a", "b"))
    job.apply(None, AttemptStarted(1, 1, devices=("b",)))
    assert job.devices == ("b",)
    again = Job("train", 0, 2)
    for rank, event in job.events():
        again.apply(rank, event)
    assert again.devices == ("b",)
