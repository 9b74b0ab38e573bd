"""Energy counters, of a machine that fakes of drivers' libraries, and files of drivers in a folder, stand for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from notebook_accel.hardware import energy
from notebook_accel.hardware.amd import AmdSensors
from notebook_accel.hardware.energy import Counter, EnergyMeter, Kinds, Zone, availability
from notebook_accel.hardware.nvidia import NvmlSensors
from tests.hardware.fakes import FakeAmdSmi, FakeGpu, FakeNvml, write_amd_files, write_rapl_zone

H100 = "NVIDIA H100"
MI300X = FakeGpu("AMD Instinct MI300X", 192 << 30, power_limit=750, energy=5_000)


def nvidias(library: FakeNvml | None) -> Kinds:
    return {"NVIDIA GPUs": lambda: NvmlSensors(lambda: library)}


def amds(root: Path, library: FakeAmdSmi | None) -> Kinds:
    return {"AMD GPUs": lambda: AmdSensors(root, lambda: library)}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the meter takes for the time, in a list that the test changes."""
    now = [0.0]
    monkeypatch.setattr(energy.time, "monotonic", lambda: now[0])
    return now


def test_a_meter_counts_its_gpu_and_all_packages_from_its_beginning(tmp_path: Path) -> None:
    library = FakeNvml([FakeGpu(H100, 80 << 30, energy=7_000_000), FakeGpu(H100, 80 << 30, energy=1)])
    first, second = NvmlSensors(lambda: library).read()
    package = write_rapl_zone(tmp_path, "intel-rapl:0", "package-0", 5_000_000)
    memory = write_rapl_zone(tmp_path, "intel-rapl:0:1", "dram", 1_000_000)
    write_rapl_zone(tmp_path, "intel-rapl:0:0", "core", 1)
    write_rapl_zone(tmp_path, "intel-rapl:1", "psys", 1)
    meter = EnergyMeter(first, tmp_path, nvidias(library))
    meter.begin()
    library.change(0, energy=7_090_000)
    library.change(1, energy=1_000_000)
    package.write_text("12_000_000")
    memory.write_text("1_500_000")
    gpus, packages = meter.read()
    assert gpus == {first: 90.0}
    assert {name.rpartition("/")[2]: joules for name, joules in packages.items()} == {
        "intel-rapl:0": 7.0,
        "intel-rapl:0:1": 0.5,
    }
    assert second not in gpus
    meter.close()


def test_a_slice_has_the_energy_of_its_whole_gpu(tmp_path: Path) -> None:
    library = FakeNvml([FakeGpu(H100, 80 << 30, slices=[FakeGpu("slice", 10 << 30)], energy=1000)])
    whole, part = NvmlSensors(lambda: library).read()
    meter = EnergyMeter(part, tmp_path, nvidias(library))
    meter.begin()
    library.change(0, energy=3000)
    assert meter.read() == ({whole: 2.0}, {})


def test_an_amd_gpu_is_counted_by_amdsmi(tmp_path: Path) -> None:
    library = FakeAmdSmi([MI300X, MI300X])
    write_amd_files(tmp_path, [MI300X, MI300X])
    _, second = AmdSensors(tmp_path, lambda: library).read()
    meter = EnergyMeter(second, tmp_path, amds(tmp_path, library))
    meter.begin()
    library.change(0, energy=6_000)
    library.change(1, energy=5_900)
    gpus, _ = meter.read()
    assert list(gpus.values()) == [pytest.approx(0.9, rel=1e-3)]


def test_partitions_of_an_amd_gpu_count_as_the_whole(tmp_path: Path) -> None:
    library = FakeAmdSmi([replace(MI300X, pci=0x300)] * 2 + [replace(MI300X, pci=0x400)])
    write_amd_files(tmp_path, [replace(MI300X, pci=0x300)] * 2 + [replace(MI300X, pci=0x400)])
    sensors = AmdSensors(tmp_path, lambda: library)
    one, other, next_gpu = [sensors.energy(uuid)[0] for uuid in sensors.read()]
    assert one == other != next_gpu


def test_a_counter_with_the_name_of_older_libraries_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([{"power": 1_000_000, "counter_resolution": 15.25, "timestamp": 0}])
    monkeypatch.setattr(FakeAmdSmi, "amdsmi_get_energy_count", lambda self, handle: next(counts))
    write_amd_files(tmp_path, [MI300X])
    sensors = AmdSensors(tmp_path, lambda: FakeAmdSmi([MI300X]))
    [uuid] = sensors.read()
    assert sensors.energy(uuid)[1] == 15.25


def test_a_gpu_that_seems_to_use_more_than_it_can_is_not_counted(tmp_path: Path, clock: list[float]) -> None:
    """Counters of MI100 have done so."""
    library = FakeAmdSmi([MI300X])
    write_amd_files(tmp_path, [MI300X])
    [uuid] = AmdSensors(tmp_path, lambda: library).read()
    meter = EnergyMeter(uuid, tmp_path, amds(tmp_path, library))
    meter.begin()
    readings = []
    for seconds, joules in (5.0, 3_000), (10.0, 10_000), (15.0, 50_000), (20.0, 51_000):
        clock[0] = seconds
        library.change(0, energy=joules * 1000)
        readings.append(len(meter.read()[0]))
    assert readings == [1, 1, 0, 0]


@pytest.mark.parametrize("count", ["N/A", 2**64 - 1], ids=["not available", "unknown"])
def test_what_amds_driver_does_not_count_has_a_reason(
    count: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_amd_files(tmp_path, [MI300X])
    assert availability(tmp_path, amds(tmp_path, FakeAmdSmi([MI300X])))["energy of AMD GPUs"] == "measured"
    for library in FakeAmdSmi([replace(MI300X, energy=None)]), FakeAmdSmi([MI300X], ["amdsmi_get_gpu_kfd_info"]):
        found = availability(tmp_path, amds(tmp_path, library))["energy of AMD GPUs"]
        assert found == "not measured: the driver reports none for GPU-00000000000000a0"
    found = availability(tmp_path, amds(tmp_path, None))["energy of AMD GPUs"]
    assert found.startswith("not measured: amdsmi, the management library of ROCm, is not installed")
    counted = {"energy_accumulator": count, "counter_resolution": 15.25, "timestamp": 0}
    monkeypatch.setattr(FakeAmdSmi, "amdsmi_get_energy_count", lambda self, handle: counted)
    found = availability(tmp_path, amds(tmp_path, FakeAmdSmi([MI300X])))["energy of AMD GPUs"]
    assert "reports none" in found


def test_a_counter_of_a_package_starts_again_at_zero(tmp_path: Path) -> None:
    counter = write_rapl_zone(tmp_path, "intel-rapl:0", "package-0", 90_000_000, wraps_after=100_000_000)
    meter = EnergyMeter("", tmp_path)
    meter.begin()
    for reading in ("99_000_000", "4_000_000", "8_000_000"):
        counter.write_text(reading)
        _, packages = meter.read()
    assert list(packages.values()) == [18.0]


def test_what_may_have_wrapped_twice_is_not_counted() -> None:
    readings = iter([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    counter = Counter(lambda: next(readings), 1000.0, wraps_after=100_000.0)
    counter.begin(0.0)
    assert counter.advance(50.0) == 1.0
    assert counter.advance(200.0) is None  # a package could have used 150 kJ
    assert counter.advance(201.0) is None
    counter.begin(202.0)
    assert counter.advance(203.0) == 1.0


@pytest.mark.parametrize(
    "readings",
    [[5.0, 6.0, None], [None, 6.0, 7.0], [5.0, 4.0, 6.0], [5.0, 5.0, 5.0], [5.0, 6.0, 9000.0]],
    ids=["lost later", "not readable", "began again with the driver", "stands still", "more than there can be"],
)
def test_what_can_not_be_counted_is_absent(readings: list[float | None]) -> None:
    values = iter(readings)

    def read() -> float:
        value = next(values)
        if value is None:
            raise OSError
        return value

    counter = Counter(read, 1000.0)
    counter.begin(0.0)
    counter.advance(1.0)
    assert counter.advance(2.0) is None


def test_a_meter_says_whether_it_can_measure_anything(tmp_path: Path) -> None:
    library = FakeNvml([FakeGpu("GeForce", 8 << 30)])  # counts none
    [uuid] = NvmlSensors(lambda: library).read()
    assert not EnergyMeter(uuid, tmp_path, nvidias(library)).counts
    assert not EnergyMeter("GPU-of-another-machine", tmp_path, nvidias(library)).counts
    write_rapl_zone(tmp_path, "intel-rapl:0", "package-0", 1)
    assert EnergyMeter("", tmp_path).counts


def test_a_report_says_what_is_measured_and_why_the_rest_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = FakeNvml([FakeGpu(H100, 80 << 30, energy=1)])
    found = availability(tmp_path, nvidias(library))
    assert found["energy of NVIDIA GPUs"] == "measured"
    assert found["energy of CPUs"].startswith("not measured: the kernel shows no counters")
    library.change(0, energy=None)
    write_rapl_zone(tmp_path, "intel-rapl:0", "package-0", 1)
    found = availability(tmp_path, nvidias(library))
    assert found["energy of NVIDIA GPUs"].startswith("not measured: the driver reports none for GPU-")
    assert found["energy of CPUs"] == "measured: package-0"

    def refuse(zone: Zone) -> float:
        raise PermissionError

    monkeypatch.setattr(energy.Zone, "read", refuse)
    assert "only root may read it" in availability(tmp_path, nvidias(None))["energy of CPUs"]
