"""TPUs as they are found from variables, the PCI bus and device files of machines that are not here."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from notebook_accel.config import LaunchConfig
from notebook_accel.errors import ConfigurationError, HardwareError
from notebook_accel.hardware import Hardware, tpus
from notebook_accel.hardware.tpus import ACCELERATOR_TYPE, Machine, Tpu
from notebook_accel.launch import engines
from notebook_accel.launch.plan import plan
from notebook_accel.launch.plan import tpus as chips
from tests.hardware.fakes import fake_hardware, write_tpu_files

COLAB = {"COLAB_TPU_1VM": "1", "TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_ID": "0", "COLAB_RELEASE_TAG": "release"}
KAGGLE = {"ISTPUVM": "1", "KAGGLE_KERNEL_RUN_TYPE": "Interactive", "TPU_PROCESS_ADDRESSES": "local"}
PAIR = {"torch": "2.9.0+cpu", "torch_xla": "2.9.0"}


def machine(
    root: Path,
    chips: int = 0,
    number: str = "0x0063",
    versions: Mapping[str, str] = PAIR,
    *,
    nodes: str = "dev/vfio/{}",
    listed: bool = True,
    library: bool = True,
) -> Machine:
    """A machine with such chips, beside a network card."""
    write_tpu_files(root, chips, number=number, nodes=nodes, listed=listed)
    return Machine(root, versions.get, lambda environ: library)


@pytest.mark.parametrize(
    ("environ", "number", "count", "found", "ranks", "words"),
    [
        (COLAB | {ACCELERATOR_TYPE: "v2-8"}, "0x0027", 4, ("v2", 4, 2, "Colab"), 8, "TPU v2, 4 chips of 2 cores"),
        (COLAB | {ACCELERATOR_TYPE: "v5e-1"}, "0x0063", 1, ("v5e", 1, 1, "Colab"), 1, "TPU v5e, 1 chip"),
        (COLAB | {ACCELERATOR_TYPE: "v6e-1"}, "0x006f", 1, ("v6e", 1, 1, "Colab"), 1, "TPU v6e, 1 chip"),
        (KAGGLE | {ACCELERATOR_TYPE: "v3-8"}, "0x0027", 4, ("v3", 4, 2, "Kaggle"), 8, "TPU v3, 4 chips of 2 cores"),
        (KAGGLE | {ACCELERATOR_TYPE: "v5litepod-8"}, "0x0063", 8, ("v5e", 8, 1, "Kaggle"), 8, "TPU v5e, 8 chips"),
        (
            {**KAGGLE, "COLAB_RELEASE_TAG": "release", ACCELERATOR_TYPE: "v5litepod-8"},
            "0x0063", 8, ("v5e", 8, 1, "Kaggle"), 8, "TPU v5e, 8 chips",
        ),
        ({}, "0x005e", 4, ("v4", 4, 1, ""), 4, "TPU v4, 4 chips"),
        ({ACCELERATOR_TYPE: "v5p-8"}, "0x0062", 4, ("v5p", 4, 1, ""), 4, "TPU v5p, 4 chips"),
        ({}, "0x006f", 8, ("v6e", 8, 1, ""), 8, "TPU v6e, 8 chips"),
        ({"COLAB_TPU_1VM": "", ACCELERATOR_TYPE: ""}, "0x0063", 0, None, 0, ""),  # Colab without a TPU
    ],
)  # fmt: skip
def test_a_tpu_is_found_without_opening_it(
    tmp_path: Path,
    environ: Mapping[str, str],
    number: str,
    count: int,
    found: tuple[str, int, int, str] | None,
    ranks: int,
    words: str,
) -> None:
    tpu = tpus.detect(environ, machine(tmp_path, count, number))
    if found is None:
        assert tpu is None
    else:
        assert tpu is not None
        assert (tpu.generation, tpu.chips, tpu.cores, tpu.host, tpu.unusable) == (*found, "")
        assert (tpu.ranks, str(tpu)) == (ranks, words)


def test_a_cloud_vm_is_known_by_its_firmware(tmp_path: Path) -> None:
    where = machine(tmp_path, 4, "0x005e", nodes="dev/accel{}")
    (tmp_path / "sys/class/dmi/id").mkdir(parents=True)
    (tmp_path / "sys/class/dmi/id/product_name").write_text("Google Compute Engine\n")
    tpu = tpus.detect({}, where)
    assert tpu is not None
    assert tpu.host == "Cloud TPU VM"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"versions": {"torch": "2.13.0"}}, "torch_xla is not installed"),
        ({"library": False}, "libtpu"),
        ({"versions": {"torch": "2.13.0", "torch_xla": "2.9.0"}}, "torch 2.13.0 and torch_xla 2.9.0 do not work"),
        ({"listed": False}, "PCI"),
    ],
)  # fmt: skip
def test_a_tpu_that_ranks_cannot_use_says_why_and_is_not_chosen(
    tmp_path: Path, options: dict[str, object], said: str
) -> None:
    tpu = tpus.detect({}, machine(tmp_path, 4, **options))  # type: ignore[arg-type]
    assert tpu is not None
    assert said in tpu.unusable
    found = on(tpu)
    assert found.kind == "cpu"
    assert said in plan.make(LaunchConfig(), found, engines.get("forkserver")).notice
    with pytest.raises(HardwareError, match="can't use"):
        plan.make(LaunchConfig(device="tpu"), found, engines.get("xla"))


def test_the_cpu_stands_in_where_it_is_asked_to(tmp_path: Path) -> None:
    where = machine(tmp_path, 4)
    tpu = tpus.detect({"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "4"}, where)
    assert tpu is not None
    assert (tpu.emulated, tpu.ranks, str(tpu)) == (True, 4, "torch_xla on the CPU, 4 devices")
    assert on(tpu).kind == "cpu"  # torch_xla itself sets the variable when it is imported
    assert tpus.detect({"PJRT_DEVICE": "CPU"}, machine(tmp_path / "other", versions={"torch": "2.13.0"})) is None


@pytest.mark.parametrize(
    ("torch", "xla", "works"),
    [("2.9.0", "2.9.0", True), ("2.9.1+cpu", "2.9.0", True), ("2.10.0", "2.9.0", False), ("2.8.0", "2.9.0", False)],
)
def test_a_pair_works_if_both_are_of_one_minor_version(torch: str, xla: str, works: bool) -> None:
    said = tpus.mismatch(Machine(version={"torch": torch, "torch_xla": xla}.get))
    assert (said == "") is works
    assert works or "pip install torch==2.9.*" in said


def test_who_holds_chips_is_read_from_the_open_files(tmp_path: Path) -> None:
    for pid, files in {
        11: ["/dev/vfio/0", "/dev/vfio/vfio", "/dev/vfio/3"],
        12: ["/dev/null"],
        13: ["/dev/accel1"],
    }.items():
        folder = tmp_path / f"proc/{pid}/fd"
        folder.mkdir(parents=True)
        for number, target in enumerate(files):
            (folder / str(number)).symlink_to(target)
    (tmp_path / "proc/self").mkdir()
    assert tpus.holders(tmp_path) == {11: ["/dev/vfio/0", "/dev/vfio/3"], 13: ["/dev/accel1"]}
    assert tpus.held(99, tmp_path) == []


def test_a_notebook_that_holds_chips_is_told_which_and_to_restart() -> None:
    with pytest.raises(HardwareError, match=r"/dev/vfio/0, /dev/vfio/1 in this notebook.*restart the kernel"):
        chips.count_ranks(
            LaunchConfig(), on(V5E), held=lambda pid: ["/dev/vfio/0", "/dev/vfio/1"] * (pid == os.getpid())
        )


V5E = Tpu("v5e", 8, host="Kaggle")
V3 = Tpu("v3", 4, 2)
EMULATED = Tpu("", 2, emulated=True)


def on(tpu: Tpu | None) -> Hardware:
    return fake_hardware(tpu=tpu)


@pytest.mark.parametrize(
    ("tpu", "asked", "size"),
    [
        (V5E, {}, 8), (V5E, {"num_processes": 1}, 1), (V5E, {"num_processes": 8}, 8), (V3, {}, 8),
        (V5E, {"strategy": "spmd"}, 1), (EMULATED, {"num_processes": 4}, 4), (EMULATED, {}, 2),
    ],
)  # fmt: skip
def test_a_rank_runs_on_each_device_of_a_tpu(tpu: Tpu, asked: dict[str, object], size: int) -> None:
    planned = plan.make(LaunchConfig(device="tpu", **asked), on(tpu), engines.get("xla"))
    assert (planned.size, planned.device, planned.backend, planned.engine) == (size, "tpu", "xla", "xla")
    assert planned.device_environ["PJRT_DEVICE"] == ("CPU" if tpu.emulated else "TPU")
    assert planned.device_environ.get("CPU_NUM_DEVICES") == (str(size) if tpu.emulated else None)


def test_a_tpu_is_used_unasked() -> None:
    assert plan.engine_for(LaunchConfig(), on(V5E)) is engines.get("xla")
    assert plan.make(LaunchConfig(), on(V5E), engines.get("xla")).size == 8


@pytest.mark.parametrize(
    ("tpu", "asked", "kind", "said"),
    [
        (None, {}, HardwareError, "this machine has none"),
        (V5E, {"num_processes": 2}, ConfigurationError, "one rank on each of the 8 devices"),
        (V5E, {"num_nodes": 2}, ConfigurationError, "one machine"),
        (V5E, {"mixed_precision": "fp16"}, ConfigurationError, "use 'bf16'"),
        (V5E, {"strategy": "fsdp"}, ConfigurationError, "'ddp' or 'spmd'"),
        (V5E, {"strategy": "spmd", "num_processes": 8}, ConfigurationError, "one rank drives all devices"),
    ],
)
def test_what_a_tpu_cannot_do_is_refused(
    tpu: Tpu | None, asked: dict[str, object], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        plan.make(LaunchConfig(device="tpu", **asked), on(tpu), engines.get("xla"))


def test_an_engine_starts_ranks_on_its_own_devices_only() -> None:
    with pytest.raises(ConfigurationError, match="unset it"):
        plan.make(LaunchConfig(device="tpu"), on(V5E), engines.get("forkserver"))
    with pytest.raises(ConfigurationError, match="unset it"):
        plan.make(LaunchConfig(device="cpu"), on(None), engines.get("xla"))
    with pytest.raises(ConfigurationError, match="strategy='spmd'"):
        plan.make(LaunchConfig(device="cpu", strategy="spmd"), on(None), engines.get("forkserver"))
