"""NVIDIA's GPUs as NVML lists them, on machines that `FakeNvml` stands for."""

from __future__ import annotations

import os

import pytest

from notebook_accel.config import LaunchConfig
from notebook_accel.errors import HardwareError
from notebook_accel.hardware import Hardware, detect
from notebook_accel.hardware.nvidia import NvmlProbe
from notebook_accel.launch.plan import devices
from tests.hardware.fakes import FakeGpu, nvml

H100 = FakeGpu("NVIDIA H100", 80 << 30)
T4 = FakeGpu("Tesla T4", 15 << 30)
GEFORCE = FakeGpu("NVIDIA GeForce RTX 4090", 24 << 30)
SLICE = FakeGpu("NVIDIA H100 MIG 1g.10gb", 10 << 30)
SLICED = FakeGpu("NVIDIA H100", 80 << 30, slices=[SLICE, SLICE])


def machine(*gpus: FakeGpu, **environ: str) -> Hardware:
    return detect(environ, NvmlProbe(nvml(*gpus)))


def choose(hardware: Hardware, **settings: object) -> devices.DeviceChoice:
    return devices.choose(LaunchConfig(**settings), hardware, "cuda")  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, 1, 2, 8])
def test_each_gpu_is_listed_and_gets_a_rank(count: int) -> None:
    found = machine(*[H100] * count)
    assert [(gpu.name, gpu.total, gpu.access) for gpu in found.gpus] == [("NVIDIA H100", 80 << 30, "shared")] * count
    assert len({gpu.uuid for gpu in found.gpus}) == count
    assert found.kind == ("cuda" if count else "cpu")
    if count:
        assert choose(found).size == count


def test_gpus_of_several_generations_keep_the_drivers_order() -> None:
    found = machine(T4, H100, GEFORCE)
    assert [gpu.name for gpu in found.gpus] == [T4.name, H100.name, GEFORCE.name]
    assert choose(found, gpus=(2, 1)).environ == {"CUDA_VISIBLE_DEVICES": "2,1"}


def test_the_two_gpus_of_a_kaggle_notebook_get_a_rank_each() -> None:
    found = machine(T4, T4, KAGGLE_KERNEL_RUN_TYPE="Interactive", TPU_PROCESS_ADDRESSES="local")
    assert (found.kind, found.tpu, choose(found).size) == ("cuda", None, 2)


def test_uuids_choose_gpus() -> None:
    found = machine(T4, H100, CUDA_VISIBLE_DEVICES="GPU-00000001-0000,GPU-00000000")
    assert [gpu.name for gpu in found.gpus] == [H100.name, T4.name]
    assert choose(found, gpus=(1,)).environ == {"CUDA_VISIBLE_DEVICES": "GPU-00000000"}


def test_a_gpu_in_slices_is_one_slice_and_hides_whole_gpus() -> None:
    found = machine(H100, SLICED, SLICED)
    assert [(gpu.name, gpu.uuid, gpu.total) for gpu in found.gpus] == [(SLICE.name, "MIG-00000001-0000", 10 << 30)]
    assert choose(found).size == 1


def test_another_slice_is_chosen_by_its_uuid_and_a_whole_gpu_by_its_number() -> None:
    found = machine(H100, SLICED, CUDA_VISIBLE_DEVICES="MIG-00000001-0001,MIG-00000001-0000")
    assert [gpu.uuid for gpu in found.gpus] == ["MIG-00000001-0001"]
    assert [gpu.name for gpu in machine(H100, SLICED, CUDA_VISIBLE_DEVICES="0").gpus] == [H100.name]
    unknown = machine(SLICED, CUDA_VISIBLE_DEVICES="MIG-GPU-aaaa/1/0")
    assert [(gpu.name, gpu.uuid) for gpu in unknown.gpus] == [("MIG device", "MIG-GPU-aaaa/1/0")]


def test_a_gpu_that_admits_no_process_cannot_be_used() -> None:
    found = machine(FakeGpu("NVIDIA H100", 80 << 30, mode=2))
    assert (found.gpus, found.kind) == ((), "cpu")
    with pytest.raises(HardwareError, match="the driver's compute mode, PROHIBITED, admits no process"):
        choose(found)


@pytest.mark.parametrize(
    ("pid", "words"),
    [
        (4321, r"GPU 1 is in an exclusive .* and is in use by process 4321: wait for its end, or pass gpus=\[0\]"),
        (os.getpid(), r"GPU 1 is .* and is in use by this notebook: restart the kernel and use no GPU in it, or pass"),
    ],
    ids=["another process", "this one"],
)
def test_a_gpu_that_admits_one_process_and_has_one_is_refused(pid: int, words: str) -> None:
    found = machine(H100, FakeGpu("NVIDIA H100", 80 << 30, held={pid: 1 << 30}, mode=3))
    with pytest.raises(HardwareError, match=words):
        choose(found)
    assert choose(found, gpus=(0,)).size == 1


def test_a_gpu_that_admits_one_process_is_not_shared() -> None:
    found = machine(FakeGpu("NVIDIA H100", 80 << 30, mode=3))
    assert choose(found).size == 1
    with pytest.raises(HardwareError, match="ranks can't share it: nvidia-smi -i 0 -c DEFAULT ends that mode"):
        choose(found, gpus=(0, 0))


def test_a_gpu_whose_mode_was_changed_after_the_advice_can_be_shared_without_a_restart() -> None:
    library = nvml(FakeGpu("NVIDIA H100", 80 << 30, mode=3))
    with pytest.raises(HardwareError, match="-c DEFAULT ends that mode"):
        choose(detect({}, NvmlProbe(library)), gpus=(0, 0))
    library().change(0, mode=0)
    assert choose(detect({}, NvmlProbe(library)), gpus=(0, 0)).size == 2


def test_a_gpu_that_has_fallen_off_the_bus_is_left_out() -> None:
    library = nvml(H100, T4, H100)
    library().lose(1)
    probe = NvmlProbe(library)
    found = detect({}, probe)
    assert [gpu.name for gpu in found.gpus] == [H100.name] * 2
    assert choose(found).size == 2
    assert probe.use().keys() == {gpu.uuid for gpu in found.gpus}


def test_a_gpu_without_memory_of_its_own_is_listed_without_a_size() -> None:
    probe = NvmlProbe(nvml(FakeGpu("NVIDIA GB10", 0)))
    found = detect({}, probe)
    assert [(gpu.name, gpu.total) for gpu in found.gpus] == [("NVIDIA GB10", 0)]
    assert choose(found).size == 1
    assert probe.use() == {}


def test_the_use_of_each_gpu_names_the_processes() -> None:
    probe = NvmlProbe(nvml(H100, FakeGpu("Tesla T4", 15 << 30, held={7: 3 << 30, 8: 0})))
    first, second = probe.use().values()
    assert (first.used, dict(first.holders)) == (0, {})
    assert (second.used, dict(second.holders)) == (3 << 30, {7: 3 << 30, 8: 0})
