"""AMD's GPUs as the kernel's files list them, on machines that `write_amd_files` stands for."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from notebook_accel.config import LaunchConfig
from notebook_accel.hardware import Hardware, detect
from notebook_accel.hardware.amd import AmdProbe
from notebook_accel.launch.plan import devices
from tests.hardware.fakes import FakeGpu, write_amd_files
from tests.hardware.rows import change_row

MI250 = FakeGpu("AMD Instinct MI250X", 64 << 30)


def machine(root: Path, *gpus: FakeGpu, **environ: str) -> Hardware:
    write_amd_files(root, gpus)
    return detect(environ, AmdProbe(root))


@pytest.mark.parametrize("count", [0, 1, 2, 8])
def test_each_gpu_is_listed_and_gets_a_rank(count: int, tmp_path: Path) -> None:
    found = machine(tmp_path, *[MI250] * count)
    assert [(gpu.name, gpu.total) for gpu in found.gpus] == [(MI250.name, 64 << 30)] * count
    assert [gpu.uuid for gpu in found.gpus] == [f"GPU-{0xA0 + index:016x}" for index in range(count)]
    if count:
        assert found.kind == "cuda"
        assert devices.choose(LaunchConfig(), found, "cuda").size == count


def test_ten_gpus_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    found = machine(tmp_path, *[FakeGpu(str(index), 1) for index in range(10)])
    assert [gpu.name for gpu in found.gpus] == [str(index) for index in range(10)]


@pytest.mark.parametrize(
    ("environ", "shown"),
    [
        ({}, [0, 1, 2, 3]),
        ({"HIP_VISIBLE_DEVICES": "3,1"}, [3, 1]),
        ({"CUDA_VISIBLE_DEVICES": "2"}, [2]),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "2"}, [0]),
        ({"ROCR_VISIBLE_DEVICES": "3,2,0"}, [3, 2, 0]),
        ({"ROCR_VISIBLE_DEVICES": "1,GPU-00000000000000A3"}, [1, 3]),
        ({"ROCR_VISIBLE_DEVICES": "3,2,0", "HIP_VISIBLE_DEVICES": "2,0"}, [0, 3]),
        ({"ROCR_VISIBLE_DEVICES": "3,2", "CUDA_VISIBLE_DEVICES": "1"}, [2]),
        ({"HIP_VISIBLE_DEVICES": "GPU-00000000000000a2"}, [2]),
    ],
)
def test_variables_hide_and_order_gpus(environ: dict[str, str], shown: list[int], tmp_path: Path) -> None:
    found = machine(tmp_path, *[FakeGpu(str(index), 1) for index in range(4)], **environ)
    assert [gpu.name for gpu in found.gpus] == [str(index) for index in shown]


@pytest.mark.parametrize("name", ["HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"])
def test_the_variable_that_hides_all_of_them_is_named(name: str, tmp_path: Path) -> None:
    found = machine(tmp_path, MI250, **{name: ""})
    assert (found.gpus, found.hidden_gpus) == ((), f"{name}='' hides them")


def test_ranks_get_the_variable_that_comes_first(tmp_path: Path) -> None:
    found = machine(tmp_path, *[MI250] * 4, HIP_VISIBLE_DEVICES="3,2,0")
    assert devices.choose(LaunchConfig(gpus=(2, 0)), found, "cuda").environ == {"HIP_VISIBLE_DEVICES": "0,3"}
    assert devices.choose(LaunchConfig(num_processes=1), found, "cpu").environ == {"HIP_VISIBLE_DEVICES": ""}


def test_a_card_without_a_name_has_the_one_of_the_table_or_of_the_driver(tmp_path: Path) -> None:
    write_amd_files(tmp_path, [MI250], products=False)
    assert [gpu.name for gpu in AmdProbe(tmp_path).devices()] == ["AMD aldebaran"]
    table = tmp_path / "usr/share/libdrm/amdgpu.ids"
    table.parent.mkdir(parents=True)
    table.write_text("1.0.0\n7408,\t01,\tanother\n7408,\t02,\tAMD Instinct MI250X\n")
    assert [gpu.name for gpu in AmdProbe(tmp_path).devices()] == ["AMD Instinct MI250X"]


def test_a_gpu_that_a_container_was_not_given_is_left_out(tmp_path: Path) -> None:
    write_amd_files(tmp_path, [MI250, MI250])
    hidden = tmp_path / "sys/class/kfd/kfd/topology/nodes/1/properties"
    hidden.unlink()
    hidden.mkdir()  # root may read any file
    assert [gpu.uuid for gpu in AmdProbe(tmp_path).devices()] == [f"GPU-{0xA1:016x}"]


def test_the_use_of_each_gpu_names_the_processes(tmp_path: Path) -> None:
    write_amd_files(tmp_path, [MI250, replace(MI250, held={7: 3 << 30, os.getpid(): 1 << 20})])
    first, second = AmdProbe(tmp_path).use().values()
    assert (first.used, dict(first.holders)) == (0, {})
    assert (second.used, dict(second.holders)) == ((3 << 30) + (1 << 20), {7: 3 << 30, os.getpid(): 1 << 20})


def test_the_installed_torch_must_be_built_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_amd_files(tmp_path, [MI250, MI250])
    change_row(monkeypatch, "rocm", probe=lambda: AmdProbe(tmp_path))
    monkeypatch.setattr(torch.version, "cuda", None)
    assert detect({}).hidden_gpus == "the installed torch is built without ROCm"
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert (len(detect({}).gpus), detect({}).gpu_variable) == (2, "HIP_VISIBLE_DEVICES")
