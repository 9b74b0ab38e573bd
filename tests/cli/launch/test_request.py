"""What a launch would start, on machines that are made up."""

import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from notebook_accel.cli.launch import start, wrapper
from notebook_accel.cli.launch.start import Request
from notebook_accel.config import file
from notebook_accel.config.environment_variables import from_environment
from notebook_accel.errors import ConfigurationError, HardwareError
from notebook_accel.hardware import Device, FixedProbe, Hardware, detect
from notebook_accel.hardware.tpus import Tpu
from notebook_accel.launch.system import network
from tests.hardware.fakes import fake_hardware

FOUR_GPUS = detect({}, FixedProbe([Device("H100", f"GPU-{index}", 80 << 30) for index in range(4)]))
SIX_CORES = fake_hardware(cores=6)
APPLE = fake_hardware(mps=True, cores=6)


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    return "train.py"


def make(
    target: str,
    hardware: Hardware = SIX_CORES,
    below: dict[str, Any] | None = None,
    environ: dict[str, str] | None = None,
    **given: Any,
) -> Request:
    layers = [file.layer(below or {}, Path("config.yaml")), from_environment(environ or {})]
    return start.make(target, ["--lr", "1"], given, layers, hardware, environ or {})


def test_one_rank_runs_as_python_would_run_it(train: str) -> None:
    made = make(train, num_processes=1)
    assert made.program == (sys.executable, "train.py", "--lr", "1")
    assert made.options is None


def test_one_rank_of_a_module_runs_as_python_m_would(train: str) -> None:
    assert make("train", num_processes=1, module=True).program == (sys.executable, "-m", "train", "--lr", "1")


def test_a_program_runs_without_python(train: str) -> None:
    assert make("true", num_processes=1, no_python=True).program == ("true", "--lr", "1")
    assert make("true", num_processes=2, no_python=True).elastic()[-4:] == ("--no-python", "true", "--lr", "1")


def test_several_ranks_meet_at_a_free_port(train: str) -> None:
    made = make(train, num_processes=2)
    assert made.elastic() == (
        "--nproc-per-node=2",
        "--rdzv-backend=one-node",
        "--rdzv-endpoint=127.0.0.1:0",
        wrapper.__file__,
        "train.py",
        "--lr",
        "1",
    )


def test_launch_of_one_rank_need_the_launcher(train: str) -> None:
    made = make(train, num_processes=1, max_restarts=2)
    assert made.elastic() == (
        "--nproc-per-node=1",
        "--rdzv-backend=one-node",
        "--rdzv-endpoint=127.0.0.1:0",
        "--max-restarts=2",
        wrapper.__file__,
        "train.py",
        "--lr",
        "1",
    )


@pytest.mark.parametrize(
    ("given", "meeting"),
    [
        (
            {"machine_rank": 1},
            ("--nnodes=2", "--node-rank=1", "--master-addr=10.0.0.1", "--master-port=29500"),
        ),
        (
            {"rdzv_backend": "c10d", "main_process_port": 4000, "rdzv_conf": "timeout=9"},
            (
                *("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=10.0.0.1:4000", "--local-addr=10.0.0.2"),
                "--rdzv-conf=timeout=9,is_host=false",
            ),
        ),
        (
            {"rdzv_backend": "c10d", "main_process_port": 4000, "max_restarts": 3, "min_processes": 3},
            (
                *("--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=10.0.0.1:4000", "--local-addr=10.0.0.2"),
                *("--rdzv-conf=is_host=false", "--max-restarts=3"),
            ),
        ),
    ],
)
def test_machines_share_the_processes(
    train: str, given: dict[str, Any], meeting: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "own_address", lambda host, port: "10.0.0.2")
    monkeypatch.setattr(network, "interface_of", {"10.0.0.2": "eth7"}.get)
    made = make(train, num_processes=8, num_machines=2, main_process_ip="10.0.0.1", **given)
    assert made.elastic() == ("--nproc-per-node=4", *meeting, wrapper.__file__, "train.py", "--lr", "1")
    assert made.plan.world_size == 8
    assert made.environment["GLOO_SOCKET_IFNAME"] == "eth7"


@pytest.mark.parametrize(
    ("hardware", "given", "size", "device"),
    [
        (SIX_CORES, {}, 4, "cpu"),
        (FOUR_GPUS, {}, 4, "cuda"),
        (FOUR_GPUS, {"cpu": True, "num_processes": 3}, 3, "cpu"),
        (FOUR_GPUS, {"gpu_ids": "1,3"}, 2, "cuda"),
        (FOUR_GPUS, {"gpu_ids": "all", "num_processes": 2}, 2, "cuda"),
        (APPLE, {}, 1, "mps"),
    ],
)
def test_ranks_run_on_what_there_is(
    train: str, hardware: Hardware, given: dict[str, Any], size: int, device: str
) -> None:
    made = make(train, hardware, **given)
    assert (made.plan.world_size, made.environment["NOTEBOOK_ACCEL_DEVICE"]) == (size, device)


def test_chosen_gpus_are_the_only_visible_ones(train: str) -> None:
    hardware = detect({"CUDA_VISIBLE_DEVICES": "3,2,0"}, FixedProbe(FOUR_GPUS.gpus))
    assert make(train, hardware, gpu_ids="0,2").environment["CUDA_VISIBLE_DEVICES"] == "3,0"


def test_ranks_are_told_what_the_options_say(train: str) -> None:
    made = make(
        train,
        num_processes=2,
        mixed_precision="bf16",
        gradient_accumulation_steps=4,
        debug=True,
        dynamo_backend="inductor",
        dynamo_use_dynamic=True,
        use_fsdp=True,
        fsdp_offload_params=False,
        fsdp_auto_wrap_policy="SIZE_BASED_WRAP",
        use_parallelism_config=True,
        parallelism_config_dp_shard_size=2,
    )
    assert made.environment == {
        "ACCELERATE_DEBUG_MODE": "true",
        "ACCELERATE_DYNAMO_BACKEND": "INDUCTOR",
        "ACCELERATE_DYNAMO_USE_DYNAMIC": "true",
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "4",
        "ACCELERATE_MIXED_PRECISION": "bf16",
        "ACCELERATE_USE_CPU": "true",
        "ACCELERATE_USE_FSDP": "true",
        "ACCELERATE_USE_PARALLELISM_CONFIG": "true",
        "CUDA_VISIBLE_DEVICES": "",
        "FSDP_AUTO_WRAP_POLICY": "SIZE_BASED_WRAP",
        "FSDP_OFFLOAD_PARAMS": "false",
        "FSDP_VERSION": "2",
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "NOTEBOOK_ACCEL_BACKEND": "gloo",
        "NOTEBOOK_ACCEL_DEVICE": "cpu",
        "OMP_NUM_THREADS": "3",
        "PARALLELISM_CONFIG_CP_COMM_STRATEGY": "allgather",
        "PARALLELISM_CONFIG_CP_SIZE": "1",
        "PARALLELISM_CONFIG_DP_REPLICATE_SIZE": "1",
        "PARALLELISM_CONFIG_DP_SHARD_SIZE": "2",
        "PARALLELISM_CONFIG_TP_SIZE": "1",
        "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
        "TORCH_FR_BUFFER_SIZE": "2000",
    }


@pytest.mark.parametrize(
    ("environ", "given", "threads"),
    [
        ({}, {"num_processes": 2}, "3"),
        ({}, {"num_processes": 1}, "6"),
        ({"OMP_NUM_THREADS": "5"}, {"num_processes": 2}, None),  # it is left as it is
        ({"OMP_NUM_THREADS": "5"}, {"num_processes": 2, "num_cpu_threads_per_process": 4}, "4"),
    ],
)
def test_ranks_share_the_cores_unless_the_user_says_more(
    train: str, environ: dict[str, str], given: dict[str, int], threads: str | None
) -> None:
    assert make(train, environ=environ, **given).environment.get("OMP_NUM_THREADS") == threads


def test_the_command_line_counts_more_than_the_file(train: str) -> None:
    below = {"num_processes": 3, "mixed_precision": "bf16", "distributed_type": "FSDP", "fsdp_offload_params": True}
    made = make(train, below=below, num_processes=2)
    assert made.plan.world_size == 2
    assert made.environment["ACCELERATE_MIXED_PRECISION"] == "bf16"
    assert made.environment["FSDP_OFFLOAD_PARAMS"] == "true"


def test_the_file_can_ask_for_gpus_and_for_variables(train: str) -> None:
    assert make(train, below={"env": {"NCCL_DEBUG": "INFO"}}).environment["NCCL_DEBUG"] == "INFO"
    with pytest.raises(HardwareError, match="torch cannot use any on this machine"):
        make(train, below={"distributed_type": "MULTI_GPU"})
    assert make(train, below={"distributed_type": "MULTI_GPU"}, cpu=True).plan.world_size == 4


def test_ranks_are_kept_next_to_their_gpus(train: str) -> None:
    assert "--numa-binding=node" in make(train, FOUR_GPUS, below={"enable_cpu_affinity": True}).elastic()
    made = make(train, below={"enable_cpu_affinity": True}, num_processes=2)
    assert "--numa-binding=node" not in made.elastic()
    assert "it has no effect" in made.notices[0]


def test_a_notebook_runs_its_cells_on_every_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cell = {"cell_type": "code", "source": "1", "metadata": {"tags": ["train"]}, "outputs": [], "execution_count": None}
    Path("a.ipynb").write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}))
    made = make("a.ipynb", num_processes=2, cells=("tag:train",), output="b.ipynb")
    how = json.dumps({"tags": ["train"], "output": "b.ipynb"})
    assert made.elastic()[-6:] == ("--module", "notebook_accel.cli.launch.notebook_rank", how, "a.ipynb", "--lr", "1")
    with pytest.raises(ConfigurationError, match="no code cell with the tag other: its tags are train"):
        make("a.ipynb", cells=("tag:other",))
    with pytest.raises(ConfigurationError, match="nowhere is not a writable folder"):
        make("a.ipynb", output="nowhere/b.ipynb")
    Path("b").mkdir()
    with pytest.raises(ConfigurationError, match="--output b is a folder"):
        make("a.ipynb", output="b")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("nothing", "cannot be read as a notebook"),
        ('{"nbformat": 3}', "not a notebook of format 4"),
        ('{"nbformat": 4}', "no list of cells"),
    ],
)
def test_what_is_no_notebook_is_refused(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "a.ipynb").write_text(content)
    with pytest.raises(ConfigurationError, match=says):
        make(str(tmp_path / "a.ipynb"))


@pytest.mark.parametrize(
    ("target", "given", "says"),
    [
        ("trian.py", {}, r"there is no script trian\.py .*Did you mean train\.py\?"),
        ("package.train", {}, "For a module write: -m package.train"),
        (".", {}, "a folder without a __main__.py"),
        ("no.such", {"module": True}, "there is no module no.such"),
        ("no-such-program", {"no_python": True}, "there is no program no-such-program"),
        ("train.py", {"cpu": True, "multi_gpu": True}, "--cpu and --multi_gpu exclude each other"),
        ("train.py", {"cpu": True, "gpu_ids": "0"}, "--cpu and --gpu_ids exclude each other"),
        ("train.py", {"module": True, "no_python": True}, "exclude each other"),
        ("train.py", {"output": "a.ipynb"}, "only notebooks"),
        ("train.py", {"fsdp_version": 2}, "--fsdp_version has no effect without --use_fsdp"),
        ("train.py", {"log_dir": "x"}, "--log_dir has no effect without --tee"),
        ("train.py", {"use_fsdp": True, "fsdp_forward_prefetch": "true"}, "FSDP2, which has no such choice"),
        ("train.py", {"num_processes": 0}, "at least 1"),
        ("train.py", {"num_machines": 2, "machine_rank": 2}, "the ranks of the machines are 0 to 1"),
        ("train.py", {"machine_rank": 1}, "the ranks of the machines are 0 to 0"),
        ("train.py", {"num_machines": 2, "num_processes": 3}, "not a multiple of --num_machines 2"),
        ("train.py", {"num_machines": 2, "machine_rank": 0}, "needs --main_process_ip"),
        ("train.py", {"num_machines": 2, "main_process_ip": "a"}, "needs --machine_rank"),
        (
            "train.py",
            {"num_machines": 2, "main_process_ip": "a", "machine_rank": 1, "main_process_port": 0},
            "any free port",
        ),
        ("train.py", {"main_process_ip": "10.0.0.1"}, r"\(from --main_process_ip\) has no effect with num_nodes=1"),
        ("train.py", {"main_process_port": 70000}, "--main_process_port.* to 65535"),
        ("train.py", {"mixed_precision": "fp16"}, "needs a GPU"),
        ("train.py", {"tee": "9"}, "--tee 9: write 1 for stdout"),
        ("train.py", {"num_processes": 2, "rdzv_conf": "timeout=9"}, "--rdzv_conf has no effect on a single machine"),
        ("train.py", {"rdzv_conf": "foo"}, "--rdzv_conf foo: write pairs"),
        ("train.py", {"monitor_interval": 0.0}, "above 0"),
        ("train.py", {"use_fsdp": True, "fsdp_reshard_after_forward": "maybe"}, "'MAYBE' is unknown"),
        ("train.py", {"enable_cpu_affinity": True}, "--enable_cpu_affinity binds ranks .* run on CPU, 6 cores"),
        ("train.py", {"use_fsdp": True, "fsdp_version": 1}, "models are sharded by FSDP2"),
        ("train.py", {"parallelism_config_tp_size": 2}, "_tp_size has no effect without --use_parallelism_config"),
        ("train.py", {"use_parallelism_config": True}, "has no effect without a size"),
    ],
)
def test_what_cannot_work_is_refused(train: str, target: str, given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        make(target, **given)


@pytest.mark.parametrize(
    ("hardware", "given", "says"),
    [
        (FOUR_GPUS, {"num_processes": 5}, "found 4: pass --num_processes 4, or --cpu"),
        (FOUR_GPUS, {"gpu_ids": "4"}, r"asked for GPU 4 \(from --gpu_ids\), found 4 \(numbered from 0\)"),
        (FOUR_GPUS, {"multi_gpu": True, "num_processes": 1}, "--multi_gpu needs several GPUs"),
        (SIX_CORES, {"gpu_ids": "0"}, "torch cannot use any on this machine"),
        (SIX_CORES, {"multi_gpu": True}, "torch cannot use any on this machine"),
    ],
)
def test_devices_that_are_not_there_are_missed(train: str, hardware: Hardware, given: Any, says: str) -> None:
    with pytest.raises(HardwareError, match=says):
        make(train, hardware, **given)


@pytest.mark.parametrize("given", [{}, {"module": True}])
def test_a_working_folder_that_has_been_deleted_is_told(
    given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "deleted"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(ConfigurationError, match="the working folder has been deleted"):
        make("train", **given)


def test_a_tpu_that_is_not_there_is_missed_with_the_option_for_the_cpu(train: str) -> None:
    with pytest.raises(HardwareError, match=r"this machine has none.* Pass --cpu to run on the CPU"):
        make(train, below={"distributed_type": "XLA"})


def test_machines_of_a_cluster_are_left_to_notebooks(train: str) -> None:
    below = {"cluster": "ray://10.0.0.1:10001", "num_machines": 2, "num_processes": 4}
    with pytest.raises(ConfigurationError, match=r"the cluster 'ray://.*--num_machines 1 for this machine alone"):
        make(train, below=below)
    assert make(train, below=below, num_machines=1).plan.world_size == 4


def test_a_port_in_use_is_refused(train: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ConfigurationError, match="in use by another program"):
            make(train, num_processes=2, main_process_port=other.getsockname()[1])
        assert make(train, num_processes=1, main_process_port=other.getsockname()[1]).options is None  # it meets nobody


def test_a_tpu_is_left_to_notebooks(train: str) -> None:
    hardware = fake_hardware(cores=6, tpu=Tpu("v5e", 8))
    made = make(train, hardware)
    assert (made.plan.device, made.plan.size) == ("cpu", 4)
    assert "8 chips found, but this command can't start ranks on a TPU (notebook_launcher can)" in made.notices[0]
    with pytest.raises(HardwareError, match="notebook_launcher can"):
        make(train, hardware, below={"distributed_type": "XLA"})


def test_what_only_a_job_follows_is_named_where_there_is_none(train: str) -> None:
    environ = {"NOTEBOOK_ACCEL_STALL_AFTER": "9", "NOTEBOOK_ACCEL_TIMEOUT": "99"}
    made = make(train, environ=environ, num_processes=2)
    assert made.notices == []
    assert (made.plan.config.stall_after, made.plan.config.timeout) == (9, 99)
    stall, end = "stall_after (from NOTEBOOK_ACCEL_STALL_AFTER)", "ignored here, since only launches from Python use it"
    unheard = make(train, environ=environ, num_processes=2, tee="3")
    assert unheard.notices == [f"timeout (from NOTEBOOK_ACCEL_TIMEOUT) and {stall}: {end}"]
    alone = make(train, environ={"NOTEBOOK_ACCEL_STALL_AFTER": "9"}, num_processes=1)
    assert alone.notices == [f"{stall}: {end}"]


def test_one_rank_with_a_timeout_is_a_job(train: str) -> None:
    made = make(train, num_processes=1, timeout="60")
    assert made.is_job
    assert made.plan.config.timeout == 60
    assert not make(train, num_processes=1).is_job


def test_the_monitor_interval_is_that_of_the_signs_of_life(train: str) -> None:
    assert make(train, num_processes=2, monitor_interval="0.5").plan.config.heartbeat == 0.5
    assert "--monitor-interval=0.5" in (make(train, num_processes=2, monitor_interval="0.5", tee="3").options or ())


def test_gpus_of_a_lower_layer_give_way(train: str) -> None:
    below = {"gpu_ids": "1,3", "num_processes": 2}
    assert make(train, FOUR_GPUS, below, gpu_ids="all").plan.device_environ == {}
    assert make(train, FOUR_GPUS, below, gpu_ids="2").plan.size == 1
    assert make(train, FOUR_GPUS, below, cpu=True, num_processes=3).plan.device == "cpu"


def test_the_command_line_may_spread_the_files_ranks_over_machines(train: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "own_address", lambda host, port: "10.0.0.2")
    given = {"num_machines": 2, "machine_rank": 1, "main_process_ip": "10.0.0.1"}
    made = make(train, below={"num_processes": 4}, **given)
    assert (made.plan.size, made.plan.world_size) == (2, 4)
    with pytest.raises(ConfigurationError, match="3 is not a multiple of --num_machines 2"):
        make(train, below={"num_processes": 3}, **given)


def test_ranks_of_one_machine_can_be_left_out_only_of_a_job(train: str) -> None:
    assert make(train, num_processes=2, max_restarts=1, min_processes=1).plan.config.min_processes == 1
    with pytest.raises(ConfigurationError, match="--min_processes leaves out whole machines here"):
        make(train, num_processes=2, max_restarts=1, min_processes=1, tee="3")
    below = {"min_processes": 1, "max_restarts": 1}
    (notice,) = make(train, below=below, num_processes=2, tee="3").notices
    assert notice.startswith("min_processes leaves out whole machines here")
    assert notice.endswith("it has no effect")
