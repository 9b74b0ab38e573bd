"""The devices as the sidebar gets them: read when asked, and remembered for five minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from notebook_accel.hardware import Sensors
from notebook_accel.hardware.amd import AmdSensors
from notebook_accel.hardware.nvidia import NvmlSensors
from notebook_accel.jupyter.model import Device
from notebook_accel.jupyter.reader import device_history
from notebook_accel.jupyter.reader.device_history import DeviceHistory
from tests.hardware.fakes import FakeGpu, FakeNvml, amd_smi, write_amd_files

BUSY = FakeGpu("NVIDIA H100", 80 << 30, {7: 41 << 30}, utilization=87, temperature=66, power=310)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in a list."""
    now = [1000.0]
    monkeypatch.setattr(device_history.time, "monotonic", lambda: now[0])
    return now


def values(device: Device) -> dict[str, str]:
    return {gauge["name"]: gauge["value"] for gauge in device["gauges"]}


def test_the_machine_and_each_gpu_are_measured(tmp_path: Path) -> None:
    library = FakeNvml([BUSY, FakeGpu("NVIDIA H100", 80 << 30, throttled=0x40, temperature=91)])
    history = DeviceHistory(tmp_path, lambda: [NvmlSensors(lambda: library)])
    listing = history.listing()
    machine, first, second = listing["devices"]
    assert (machine["id"], machine["title"], listing["problem"]) == ("cpu", "This machine", "")
    assert {"CPU", "memory", "disk"} <= values(machine).keys()
    assert values(machine)["memory"].endswith("B")
    assert (first["id"], first["title"], first["warning"]) == ("GPU-00000000-0000", "GPU 0 · NVIDIA H100", "")
    assert values(first) == {
        "utilization": "87%", "memory": "41 of 80 GB", "temperature": "66 °C", "power": "310 of 700 W",
    }  # fmt: skip
    assert [gauge["lines"] for gauge in first["gauges"]] == [[[(1000, y)]] for y in (870, 512, 600, 443)]
    assert second["warning"].startswith("The GPU runs below its clock rate because it is too hot (91 °C)")
    history.close()
    assert not library.is_open


def test_an_amd_gpu_is_measured(tmp_path: Path) -> None:
    write_amd_files(tmp_path, [FakeGpu("AMD Instinct MI300X", 192 << 30)])
    measured = FakeGpu("", 192 << 30, {7: 41 << 30}, utilization=87, temperature=66, power=310, power_limit=750)
    [_, gpu] = DeviceHistory(tmp_path, lambda: [AmdSensors(tmp_path, amd_smi(measured))]).listing()["devices"]
    assert (gpu["id"], gpu["title"]) == ("GPU-00000000000000a0", "GPU 0 · AMD Instinct MI300X")
    assert values(gpu) == {
        "utilization": "87%", "memory": "41 of 192 GB", "temperature": "66 °C", "power": "310 of 750 W",
    }  # fmt: skip


def test_five_minutes_are_remembered_with_gaps_where_nothing_was_read(tmp_path: Path, clock: list[float]) -> None:
    library = FakeNvml([BUSY])
    history = DeviceHistory(tmp_path, lambda: [NvmlSensors(lambda: library)])

    def lines() -> list[list[tuple[int, int]]]:
        [_, gpu] = history.listing()["devices"]
        return gpu["gauges"][0]["lines"]

    for use in (10, 20, 30):
        library.change(0, utilization=use)
        lines()
        clock[0] += 1
    clock[0] += 147  # nobody looks
    library.change(0, utilization=40)
    assert lines() == [[(500, 100), (503, 200), (507, 300)], [(1000, 400)]]
    clock[0] += 200
    assert lines() == [[(333, 400)], [(1000, 400)]]


def test_several_browsers_cause_one_reading(tmp_path: Path, clock: list[float]) -> None:
    reads: list[Sensors] = []

    class Counted(NvmlSensors):
        def read(self):  # type: ignore[no-untyped-def]
            reads.append(self)
            return super().read()

    history = DeviceHistory(tmp_path, lambda: [Counted(lambda: FakeNvml([BUSY]))])
    assert history.listing() is history.listing()
    assert len(reads) == 1
    clock[0] += 1
    history.listing()
    assert len(reads) == 2


def test_a_driver_that_fails_is_named_beside_what_can_be_read(tmp_path: Path) -> None:
    def fail() -> list[Sensors]:
        raise OSError("the driver is gone")

    listing = DeviceHistory(tmp_path, fail).listing()
    assert listing["problem"] == "The GPUs can't be read: OSError: the driver is gone"
    assert [device["title"] for device in listing["devices"]] == ["This machine"]
