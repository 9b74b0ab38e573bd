"""Energy counters, of a machine that `FakeNvml` and files of RAPL in a folder stand for."""

from __future__ import annotations

from pathlib import Path

import pytest

from notebook_accel.hardware import energy
from notebook_accel.hardware.energy import Counter, EnergyMeter, Zone, availability
from notebook_accel.hardware.nvidia import NvmlSensors
from tests.hardware.fakes import FakeGpu, FakeNvml, write_rapl_zone

H100 = "NVIDIA H100"


def test_a_meter_counts_its_gpu_and_all_packages_from_its_beginning(tmp_path: Path) -> None:
    library = FakeNvml([FakeGpu(H100, 80 << 30, energy=7_000_000), FakeGpu(H100, 80 << 30, energy=1)])
    first, second = NvmlSensors(lambda: library).read()
    package = write_rapl_zone(tmp_path, "intel-rapl:0", "package-0", 5_000_000)
    memory = write_rapl_zone(tmp_path, "intel-rapl:0:1", "dram", 1_000_000)
    write_rapl_zone(tmp_path, "intel-rapl:0:0", "core", 1)
    write_rapl_zone(tmp_path, "intel-rapl:1", "psys", 1)
    meter = EnergyMeter(first, tmp_path, lambda: library)
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
    meter = EnergyMeter(part, tmp_path, lambda: library)
    meter.begin()
    library.change(0, energy=3000)
    assert meter.read() == ({whole: 2.0}, {})


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
    counter = Counter(lambda: next(readings), wraps_after=100_000.0)
    counter.begin(0.0)
    assert counter.advance(50.0) == 1.0
    assert counter.advance(200.0) is None  # a package could have used 150 kJ
    assert counter.advance(201.0) is None
    counter.begin(202.0)
    assert counter.advance(203.0) == 1.0


@pytest.mark.parametrize(
    "readings",
    [[5.0, 6.0, None], [None, 6.0, 7.0], [5.0, 4.0, 6.0], [5.0, 5.0, 5.0]],
    ids=["lost later", "not readable", "began again with the driver", "stands still"],
)
def test_what_can_not_be_counted_is_absent(readings: list[float | None]) -> None:
    values = iter(readings)
    counter = Counter(lambda: next(values))
    counter.begin(0.0)
    counter.advance(1.0)
    assert counter.advance(2.0) is None


def test_a_meter_says_whether_it_can_measure_anything(tmp_path: Path) -> None:
    library = FakeNvml([FakeGpu("GeForce", 8 << 30)])  # counts none
    [uuid] = NvmlSensors(lambda: library).read()
    assert not EnergyMeter(uuid, tmp_path, lambda: library).counts
    assert not EnergyMeter("GPU-of-another-machine", tmp_path, lambda: library).counts
    write_rapl_zone(tmp_path, "intel-rapl:0", "package-0", 1)
    assert EnergyMeter("", tmp_path).counts


def test_a_report_says_what_is_measured_and_why_the_rest_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = FakeNvml([FakeGpu(H100, 80 << 30, energy=1)])
    found = availability(tmp_path, lambda: library)
    assert found["energy of NVIDIA GPUs"] == "measured"
    assert found["energy of CPUs"].startswith("not measured: the kernel shows no counters")
    library.change(0, energy=None)
    write_rapl_zone(tmp_path, "intel-rapl:0", "package-0", 1)
    found = availability(tmp_path, lambda: library)
    assert found["energy of NVIDIA GPUs"].startswith("not measured: the driver reports none for GPU-")
    assert found["energy of CPUs"] == "measured: package-0"

    def refuse(zone: Zone) -> float:
        raise PermissionError

    monkeypatch.setattr(energy.Zone, "read", refuse)
    assert "only root may read it" in availability(tmp_path, lambda: None)["energy of CPUs"]
