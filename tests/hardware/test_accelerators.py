"""Each row of the table of accelerators finds, counts, names, and measures its devices, on machines that fakes make."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from notebook_accel import hardware
from notebook_accel.config import LaunchConfig
from notebook_accel.config.settings import DEVICES
from notebook_accel.hardware import torch_build, tpus
from notebook_accel.hardware.accelerators import ACCELERATORS, backend
from notebook_accel.hardware.amd import AmdProbe, AmdSensors
from notebook_accel.hardware.apple import AppleProbe
from notebook_accel.hardware.cores import CpuProbe
from notebook_accel.hardware.intel import IntelProbe
from notebook_accel.hardware.nvidia import NvmlProbe, NvmlSensors
from notebook_accel.launch import engines
from notebook_accel.launch.plan import plan
from tests.hardware.fakes import (
    FakeGpu,
    amd_smi,
    nvml,
    write_amd_files,
    write_intel_files,
    write_tpu_files,
)
from tests.hardware.rows import change_row

GIB = 1 << 30
PAGE = Path(__file__).parents[2] / "docs" / "hardware.md"
PAIR = {"torch": "2.9.0", "torch_xla": "2.9.0"}
ONE_OF_A_MACHINE = ("mps", "cpu")


def fakes(name: str, count: int, root: Path) -> dict[str, Any]:
    """The fields of a row on a machine with so many of its devices."""
    nvidia, amd = FakeGpu("NVIDIA H100", 80 * GIB, {7: GIB}), FakeGpu("AMD Instinct MI300X", 192 * GIB, {7: GIB})
    if name == "cuda":
        library = nvml(*[nvidia] * count)
        return {"probe": lambda: NvmlProbe(library), "sensors": lambda: NvmlSensors(library)}
    if name == "rocm":
        write_amd_files(root, [amd] * count)
        return {"probe": lambda: AmdProbe(root), "sensors": lambda: AmdSensors(root, amd_smi(*[amd] * count))}
    if name == "xpu":
        write_intel_files(root, [FakeGpu("Arc B580", 12 * GIB)] * count)
        return {"probe": lambda: IntelProbe(root)}
    if name == "tpu":
        write_tpu_files(root, count)
        machine = tpus.Machine(root, PAIR.get, lambda environ: True)
        return {"probe": lambda: tpus.TpuProbe(root), "narrow": functools.partial(tpus.narrow, machine=machine)}
    if name == "mps":
        return {"probe": lambda: AppleProbe("Darwin" if count else "Linux", "arm64")}
    return {"probe": CpuProbe}


TOTALS = {"cuda": 80 * GIB, "rocm": 192 * GIB, "xpu": 12 * GIB, "tpu": 16 * GIB}
NAMES = {
    "cuda": "NVIDIA H100",
    "rocm": "AMD Instinct MI300X",
    "xpu": "Intel GPU 0xe20b",
    "tpu": "TPU v5e",
    "mps": "Apple GPU",
}
Machine = Callable[..., hardware.Hardware]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    """Makes one that has no devices but its CPU and those of one row, with a torch that is built for them."""

    def make(name: str, count: int, environ: Mapping[str, str] = {}) -> hardware.Hardware:
        for row in ACCELERATORS:
            change_row(monkeypatch, row.name, **fakes(row.name, count if row.name == name else 0, tmp_path / row.name))
            if row.name == name:
                monkeypatch.setattr(torch_build, "platform", lambda build=row.built_for: build)
        return hardware.detect(environ)

    return make


@pytest.mark.parametrize("count", [0, 1, 2, 8])
@pytest.mark.parametrize("row", ACCELERATORS, ids=lambda row: row.name)
def test_a_row_finds_counts_and_names_its_devices(row: hardware.Accelerator, count: int, machine: Machine) -> None:
    found = machine(row.name, count)
    there = 1 if row.name == "cpu" else min(count, 1) if row.name == "mps" else count
    devices = found.listings[row.name].devices if row.name in found.listings else ()
    assert len(devices) == there
    assert len({each.uuid for each in devices}) == there
    assert {name for name in found.listings if name != "cpu"} == ({row.name} - {"cpu"} if there else set())
    for device in devices:
        assert re.fullmatch(NAMES.get(row.name, r"CPU, \d+ cores?"), device.name)
        assert device.total == TOTALS.get(row.name, psutil.virtual_memory().total)


@pytest.mark.parametrize("row", [row for row in ACCELERATORS if row.device], ids=lambda row: row.name)
def test_ranks_use_a_row_by_default_with_its_backend(row: hardware.Accelerator, machine: Machine) -> None:
    found = machine(row.name, 2)
    assert found.kind == row.device
    if row.name == "tpu":
        assert backend("tpu") == row.backend  # a plan needs the TPU's details, which `test_tpus.py` has
        return
    planned = plan.make(LaunchConfig(), found, engines.get("forkserver"))
    assert (planned.device, planned.backend) == (row.device, row.backend)
    assert planned.size == (1 if row.name == "mps" else 2 if row.name != "cpu" else min(found.cores, 4))


@pytest.mark.parametrize("row", [row for row in ACCELERATORS if row.variable], ids=lambda row: row.name)
def test_the_variable_of_a_row_hides_and_chooses_its_devices(row: hardware.Accelerator, machine: Machine) -> None:
    chosen = machine(row.name, 2, {row.variable: "1"})
    assert (len(chosen.gpus), chosen.gpu_ids, chosen.gpu_variable) == (1, ("1",), row.variable)


@pytest.mark.parametrize("row", [row for row in ACCELERATORS if row.built_for], ids=lambda row: row.name)
def test_a_torch_that_is_not_built_for_a_row_cannot_use_it(
    row: hardware.Accelerator, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(row.name, 1)
    monkeypatch.setattr(torch_build, "platform", lambda: "")
    found = hardware.detect({})
    assert found.kind == "cpu"
    assert found.listings[row.name].unusable == f"the installed torch is built without {row.built_for}"
    assert found.hidden_gpus == ("" if row.name == "xpu" else f"the installed torch is built without {row.built_for}")


@pytest.mark.parametrize("name", ["cuda", "rocm", "cpu"])
def test_the_memory_in_use_is_that_of_the_driver(name: str, machine: Machine) -> None:
    found = machine(name, 2)
    uses = hardware.memory_use()
    for device in found.listings[name].devices:
        assert uses[device.uuid].used == GIB if name != "cpu" else uses["cpu"].used > 0
    assert uses.keys() == {"cpu", *(each.uuid for each in found.listings[name].devices)}


@pytest.mark.parametrize("name", ["cuda", "rocm"])
def test_the_sensors_of_a_row_measure_each_device(name: str, machine: Machine) -> None:
    found = machine(name, 2)
    readings = {uuid: each for sensors in hardware.open_sensors() for uuid, each in sensors.read().items()}
    assert {uuid: each.memory_used for uuid, each in readings.items()} == {each.uuid: GIB for each in found.gpus}


def test_a_real_accelerator_comes_before_the_cpu_and_a_tpu_before_a_gpu() -> None:
    assert [row.name for row in ACCELERATORS] == ["tpu", "cuda", "rocm", "xpu", "mps", "cpu"]


def test_launches_accept_the_devices_of_the_table() -> None:
    assert set(DEVICES) == {row.device for row in ACCELERATORS if row.device}


def test_the_page_has_the_rows_of_the_table() -> None:
    table, _, _ = PAGE.read_text().partition("| kind |")[2].partition("\n\n")
    rows = re.findall(r"(?m)^\| `(\w+)` \|(.+)\|$", table)
    assert [name for name, _ in rows] == [row.name for row in ACCELERATORS]
    for row, (_, text) in zip(ACCELERATORS, rows, strict=True):
        for expected in filter(None, (row.device, row.backend, row.variable)):
            assert f"`{expected}`" in text, (row.name, expected)
