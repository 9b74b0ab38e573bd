"""What is measured on GPUs, on machines that `FakeNvml` and `write_amd_files` stand for."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from notebook_accel.hardware.amd import AmdSensors
from notebook_accel.hardware.device_probe import GpuReading
from notebook_accel.hardware.nvidia import NvmlSensors
from tests.hardware.fakes import FakeAmdSmi, FakeGpu, FakeNvml, amd_smi, write_amd_files

SLICE = FakeGpu("NVIDIA H100 MIG 1g.10gb", 10 << 30, held={7: 1 << 30})
BUSY = FakeGpu("NVIDIA H100", 80 << 30, {7: 3 << 30}, utilization=87, temperature=66, power=310)


def test_nvidias_driver_is_read_and_its_library_closed() -> None:
    library = FakeNvml([BUSY, FakeGpu("NVIDIA H100", 80 << 30, slices=[SLICE])])
    sensors = NvmlSensors(lambda: library)
    busy, whole, part = sensors.read().values()
    assert busy == GpuReading("NVIDIA H100", 87, 3 << 30, 80 << 30, 66, 310.0, 700.0)
    assert (whole.utilization, part.utilization) == (0, None)
    assert (part.memory_used, part.memory_total, part.temperature) == (1 << 30, 10 << 30, 35)
    assert library.is_open
    sensors.close()
    assert (library.is_open, sensors.read()) == (False, {})
    assert NvmlSensors(lambda: None).read() == NvmlSensors(lambda: FakeNvml([])).read() == {}


def test_reasons_and_error_counters_of_nvidias_driver_change() -> None:
    library = FakeNvml([replace(BUSY, throttled=0x1)])  # idle: not a reason to worry
    sensors = NvmlSensors(lambda: library)

    def reading() -> GpuReading:
        [found] = sensors.read().values()
        return found

    assert (reading().throttled, reading().errors) == ((), {})
    bits = (0x4, 0x20, 0x48, 0x88, 0x8, 0x24)
    reasons = []
    for each in bits:
        library.change(0, throttled=each)
        reasons.append(reading().throttled)
    assert reasons == [
        ("power limit",), ("temperature",), ("temperature",), ("power brake",), ("hardware",),
        ("temperature", "power limit"),
    ]  # fmt: skip
    flits, data = "NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL"
    library.change(0, errors={"NVML_FI_DEV_PCIE_REPLAY_COUNTER": 5, flits: 2, data: 3})
    assert reading().errors == {"PCIe replays": 5, "NVLink CRC errors": 5}


def test_a_card_or_a_library_that_measures_less_is_read_as_far_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeNvml([BUSY])

    def unsupported(*arguments: object) -> None:
        raise library.NVMLError("Not Supported")

    monkeypatch.setattr(library, "nvmlDeviceGetPowerUsage", unsupported, raising=False)
    monkeypatch.delattr(FakeNvml, "nvmlDeviceGetFieldValues")
    [reading] = NvmlSensors(lambda: library).read().values()
    assert (reading.power, reading.power_limit, reading.errors, reading.temperature) == (None, 700.0, {}, 66)


def test_the_fake_of_nvml_has_the_functions_and_numbers_of_the_real_one() -> None:
    for name, fake in vars(FakeNvml).items():
        if name.startswith("nvml"):
            real = inspect.signature(getattr(pynvml, name)).parameters
            own = list(inspect.signature(fake).parameters)[1:]
            assert len(own) in (len(real), len([each for each in real.values() if each.default is each.empty])), name
        elif name.startswith("NVML_"):
            assert fake == getattr(pynvml, name), name
    assert issubclass(pynvml.NVMLError, Exception)


def test_amds_files_are_read(tmp_path: Path) -> None:
    hot = replace(BUSY, throttled=1 << 36 | 1, errors={"pcie_replay_count": 4, "ras/umc_err_count": 2})
    write_amd_files(tmp_path, [replace(hot, name="AMD Instinct MI250X"), FakeGpu("AMD Instinct MI250X", 64 << 30)])
    first, second = AmdSensors(tmp_path, lambda: None).read().values()
    assert first == GpuReading(
        "AMD Instinct MI250X", 87, 3 << 30, 80 << 30, 66.0, 310.0, 700.0, ("temperature", "power limit"),
        {"PCIe replays": 4, "uncorrected memory errors": 2},
    )  # fmt: skip
    assert (second.throttled, second.errors) == ((), {"PCIe replays": 0})


def test_an_amd_card_without_some_of_the_files_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    write_amd_files(tmp_path, [BUSY])
    device = tmp_path / "sys/class/drm/renderD128/device"
    for file in [*device.glob("hwmon/hwmon3/*_label"), device / "gpu_busy_percent", device / "pcie_replay_count"]:
        file.unlink()
    (device / "hwmon/hwmon3/power1_average").rename(device / "hwmon/hwmon3/power1_input")  # newer cards
    (device / "gpu_metrics").write_bytes(b"\x60\x00\x01\x04" + b"\xff" * 92)  # another version
    [reading] = AmdSensors(tmp_path, lambda: None).read().values()
    assert (reading.utilization, reading.temperature, reading.power, reading.throttled) == (None, 61.0, 310.0, ())
    assert reading.errors == {}


INSTINCT = FakeGpu("AMD Instinct MI300X", 192 << 30, {7: 3 << 30}, utilization=12, temperature=50, power=400)


def test_amdsmi_is_asked_before_the_files_and_closed(tmp_path: Path) -> None:
    files = replace(INSTINCT, throttled=1, errors={"pcie_replay_count": 4})
    write_amd_files(tmp_path, [files, files])
    library = FakeAmdSmi([replace(INSTINCT, utilization=87, held={7: 9 << 30}), replace(INSTINCT, temperature=71)])
    sensors = AmdSensors(tmp_path, lambda: library)
    first, second = sensors.read().values()
    assert first == GpuReading(
        INSTINCT.name, 87, 9 << 30, 192 << 30, 50, 400, 700.0, ("power limit",), {"PCIe replays": 4}
    )
    assert (second.utilization, second.temperature) == (12, 71)
    assert library.is_open
    sensors.close()
    assert (library.is_open, sensors.read()) == (False, {})


@pytest.mark.parametrize(
    ("unsupported", "field", "value"),
    [
        ("amdsmi_get_gpu_activity", "utilization", 12),
        ("amdsmi_get_gpu_memory_usage", "memory_used", 3 << 30),
        ("amdsmi_get_gpu_memory_total", "memory_total", 192 << 30),
        ("amdsmi_get_temp_metric", "temperature", 50.0),
        ("amdsmi_get_power_info", "power", 400.0),
        ("amdsmi_get_power_cap_info", "power_limit", 700.0),
        ("amdsmi_get_gpu_kfd_info", "utilization", 12),  # ROCm 6.2, which can't say which GPU is which
    ],
)
def test_what_amdsmi_does_not_measure_comes_from_the_files(
    unsupported: str, field: str, value: float, tmp_path: Path
) -> None:
    write_amd_files(tmp_path, [INSTINCT])
    other = FakeGpu("", 1, {7: 1}, utilization=1, temperature=1, power=1, power_limit=1)
    [reading] = AmdSensors(tmp_path, lambda: FakeAmdSmi([other], [unsupported])).read().values()
    assert getattr(reading, field) == value


def test_an_older_card_reports_its_power_as_the_average(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_amd_files(tmp_path, [replace(INSTINCT, power=1)])
    older = {"current_socket_power": "N/A", "average_socket_power": 250}
    monkeypatch.setattr(FakeAmdSmi, "amdsmi_get_power_info", lambda self, handle: older)
    [reading] = AmdSensors(tmp_path, amd_smi(INSTINCT)).read().values()
    assert reading.power == 250


def test_amdsmi_is_not_loaded_on_a_machine_without_amds_gpus(tmp_path: Path) -> None:
    assert AmdSensors(tmp_path, fail).read() == {}
    write_amd_files(tmp_path, [INSTINCT])
    assert len(AmdSensors(tmp_path, amd_smi()).read()) == 1  # no driver for the library, as in some containers


def fail() -> None:
    raise AssertionError("it was loaded")
