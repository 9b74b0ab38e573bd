from dataclasses import replace
from typing import Any

import pytest

from notebook_accel.config import LaunchConfig
from notebook_accel.config.settings import Source
from notebook_accel.errors import ConfigurationError, HardwareError
from notebook_accel.hardware import Device, FixedProbe, Hardware, detect
from notebook_accel.launch import engines
from notebook_accel.launch.engines.contract import NodeRequest
from notebook_accel.launch.plan import plan
from notebook_accel.launch.plan.plan import Plan
from tests.hardware.fakes import fake_hardware

FORKSERVER, INPROCESS = engines.get("forkserver"), engines.get("inprocess")


def machine(gpus: int = 0, *, visible: str | None = None, cores: int = 16, mps: bool = False) -> Hardware:
    probe = FixedProbe([Device("H200", f"GPU-{index}", 2**37) for index in range(gpus)])
    found = detect({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}, probe)
    rest = fake_hardware(mps=mps, cores=cores)
    return replace(found, listings={**found.listings, **rest.listings}, cores=cores)


def make(hardware: Hardware, *, engine: Any = FORKSERVER, **given: Any) -> Plan:
    return plan.make(LaunchConfig(**given), hardware, engine)


# Where the ranks run


@pytest.mark.parametrize(
    ("hardware", "given", "size", "device", "backend"),
    [
        (machine(4), {}, 4, "cuda", "nccl"),
        (machine(4), {"num_processes": 2}, 2, "cuda", "nccl"),
        (machine(4, visible="3,1"), {}, 2, "cuda", "nccl"),
        (machine(4), {"device": "cpu"}, 4, "cpu", "gloo"),
        (machine(4), {"device": "cpu", "num_processes": 7}, 7, "cpu", "gloo"),
        (machine(1), {"gpus": (0, 0)}, 2, "cuda", "gloo"),
        (machine(4), {"gpus": (2, 3)}, 2, "cuda", "nccl"),
        (machine(4), {"gpus": (2, 3), "num_processes": 2}, 2, "cuda", "nccl"),
        (machine(4), {"gpus": (0, 1, 0, 1)}, 4, "cuda", "gloo"),
        (machine(4), {"mixed_precision": "fp16"}, 4, "cuda", "nccl"),
        (machine(mps=True), {}, 1, "mps", "gloo"),
        (machine(mps=True), {"device": "cpu", "num_processes": 2}, 2, "cpu", "gloo"),
        (machine(cores=16), {}, 4, "cpu", "gloo"),
        (machine(cores=2), {}, 2, "cpu", "gloo"),
        (machine(cores=1), {"num_processes": 3}, 3, "cpu", "gloo"),
        (machine(), {"mixed_precision": "bf16"}, 4, "cpu", "gloo"),
    ],
    ids=lambda value: "" if isinstance(value, Hardware) else str(value),
)
@pytest.mark.smoke
def test_ranks_go_where_they_fit(
    hardware: Hardware, given: dict[str, Any], size: int, device: str, backend: str
) -> None:
    made = make(hardware, **given)
    assert (made.size, made.device, made.backend) == (size, device, backend)


@pytest.mark.parametrize(
    ("hardware", "given", "message"),
    [
        (
            machine(2),
            {"num_processes": 4},
            "asked for 4 GPUs, found 2: pass num_processes=2, gpus=[0, 1, 0, 1] to share them, or device='cpu'",
        ),
        (machine(1), {"num_processes": 2}, "asked for 2 GPUs, found 1"),
        (machine(4, visible="0"), {"num_processes": 2}, "asked for 2 GPUs, found 1"),
        (machine(2), {"gpus": (0, 2)}, "asked for GPU 2, found 2 (numbered from 0)"),
        (machine(), {"device": "cuda"}, "torch cannot use any on this machine. Pass device='cpu'"),
        (machine(), {"gpus": (0,)}, "torch cannot use any on this machine. Leave out gpus to run on the CPU."),
        (
            machine(2, visible=""),
            {"device": "cuda"},
            "any on this machine: CUDA_VISIBLE_DEVICES='' hides them. Pass device='cpu'",
        ),
        (machine(), {"device": "mps"}, "no Apple GPU"),
    ],
    ids=lambda value: "" if isinstance(value, Hardware) else str(value)[:40],
)
def test_a_device_that_is_not_there_is_missed(hardware: Hardware, given: dict[str, Any], message: str) -> None:
    with pytest.raises(HardwareError) as refused:
        make(hardware, **given)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("hardware", "given", "message"),
    [
        (machine(), {"mixed_precision": "fp16"}, "mixed_precision='fp16' needs a GPU"),
        (machine(), {"mixed_precision": "fp8"}, "use 'bf16' or 'no'"),
        (machine(4), {"mixed_precision": "fp16", "device": "cpu"}, "these ranks run on the CPU"),
        (machine(4), {"gpus": (0, 1), "num_processes": 3}, "gpus=[0, 1] names 2 GPUs for num_processes=3 ranks"),
        (machine(4), {"gpus": (0, 0, 1, 1)}, "write gpus=[0, 1, 0, 1]"),
        (machine(4), {"gpus": (0, 1, 0, 0)}, "write gpus=[0, 1, 0, 1]"),
        (machine(mps=True), {"num_processes": 2}, "pass num_processes=1, or device='cpu' for more"),
        (machine(), {"num_processes": 2, "engine": INPROCESS}, "runs at most 1 rank, not 2: pass num_processes=1"),
    ],
    ids=lambda value: "" if isinstance(value, Hardware) else str(value)[:40],
)
def test_settings_that_contradict_the_hardware_are_refused(
    hardware: Hardware, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        make(hardware, **given)
    assert message in str(refused.value)


def test_the_advice_for_too_few_gpus_works() -> None:
    assert make(machine(2), gpus=(0, 1, 0, 1)).size == 4


@pytest.mark.parametrize(
    ("hardware", "given", "notice"),
    [
        (
            machine(cores=3),
            {},
            "No GPU found; using 3 CPU processes (change with num_processes)",
        ),
        (
            machine(cores=1),
            {},
            "No GPU found; using 1 CPU process (change with num_processes)",
        ),
        (machine(cores=3), {"in_magic": True}, "No GPU found; using 3 CPU processes (change with -n"),
        (machine(4), {"device": "cpu"}, "device='cpu'; using 4 CPU processes"),
        (machine(4), {"device": "cpu", "in_magic": True}, "%accelerate --device cpu; using 4 CPU processes"),
        (machine(2, visible=""), {}, "GPUs found, but CUDA_VISIBLE_DEVICES='' hides them; using 4 CPU processes"),
        (machine(), {"engine": INPROCESS}, "using 1 CPU process"),
        (machine(), {"num_processes": 2}, None),
        (machine(cores=3), {"num_processes": 3}, None),
        (
            machine(cores=3),
            {"num_processes": 4},
            "training faster: with num_processes=3, each has a core",
        ),
        (machine(1, cores=1), {"gpus": (0, 0)}, None),
        (machine(1), {}, "One GPU found; using 1 process (with gpus=[0, 0], two share it)"),
        (machine(1), {"in_magic": True}, "One GPU found; using 1 process (with %accelerate --gpus 0,0, two"),
        (machine(4, visible="2"), {"device": "cuda"}, "One GPU found; using 1 process"),
        (machine(1), {"num_processes": 1}, None),
        (machine(1), {"gpus": (0, 0)}, None),
        (machine(1), {"num_nodes": 2, "master_addr": "10.0.0.1", "port": 29500}, None),
        (machine(4), {}, None),
        (machine(mps=True), {}, None),
    ],
    ids=lambda value: "" if isinstance(value, Hardware) else str(value)[:40],
)
def test_a_number_that_was_chosen_for_the_user_is_told(
    hardware: Hardware, given: dict[str, Any], notice: str | None
) -> None:
    made = make(hardware, **given).notice
    assert made.startswith(notice) or notice in made if notice else made == ""


def test_a_setting_that_cannot_work_here_is_named_with_its_source() -> None:
    source = Source("file", "gpu_ids in config.yaml")
    with pytest.raises(HardwareError, match=r"asked for GPU 5 \(from gpu_ids in config.yaml\), found 2"):
        make(machine(2), gpus=(5,), sources={"gpus": source})
    with pytest.raises(ConfigurationError, match="rdzv_backend='c10d' is not available"):
        make(machine(), num_nodes=2, master_addr="10.0.0.1", rdzv_backend="c10d")


@pytest.mark.parametrize(
    ("given", "rank", "label"),
    [
        ({"num_processes": 2}, 1, "[1] "),
        ({"num_processes": 8}, "0-3", "[0-3] "),
        ({"num_processes": 1}, 0, ""),
        ({"num_processes": 2, "label": ""}, 0, ""),
        ({"num_processes": 1, "num_nodes": 2}, 0, "[0] "),
        ({"num_processes": 2, "label": "${role_name}:$rank/$local_rank"}, 1, "default:1/1 "),
        ({"num_processes": 2, "num_nodes": 2, "node_rank": 1, "label": "$rank/$local_rank"}, 3, "3/1 "),
    ],
)
def test_lines_are_labeled(given: dict[str, Any], rank: int | str, label: str) -> None:
    assert make(machine(), **given).label(rank) == label


def test_several_ranks_of_the_second_machine_are_labeled_with_their_places_there() -> None:
    made = make(machine(), num_processes=2, num_nodes=2, node_rank=1, label="$rank/$local_rank")
    assert made.label("2-3") == "2-3/0-1 "


def test_ranks_of_a_cluster_are_labeled_with_their_places_on_each_machine() -> None:
    config = LaunchConfig(label="$rank/$local_rank", num_nodes=2, cluster="auto")
    made = Plan(
        config=config,
        size=6,
        device="cpu",
        backend="gloo",
        engine="cluster",
        threads=1,
        node_request=NodeRequest(2, cpus=3),
    )
    assert [made.label(rank) for rank in (0, 4, "0-5", "2-3", "1,4")] == [
        "0/0 ",
        "4/1 ",
        "0-5/0-2 ",
        "2-3/0,2 ",
        "1,4/1 ",
    ]
