import os
import pwd
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from accelerate.commands.config.config_args import ClusterConfig

from notebook_accel.config import LaunchConfig, file
from notebook_accel.config.keys import from_config
from notebook_accel.config.layers import merge
from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.journal import records

# As the peer's questionnaire writes them.
ONE_GPU = """
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: 'NO'
downcast_bf16: 'no'
enable_cpu_affinity: false
gpu_ids: all
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 1
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
"""
TWO_MACHINES = """
compute_environment: LOCAL_MACHINE
debug: true
distributed_type: MULTI_GPU
downcast_bf16: no
gpu_ids: 0,1,2,3
machine_rank: 1
main_process_ip: 10.0.0.1
main_process_port: 29501
main_training_function: main
mixed_precision: no
num_machines: 2
num_processes: 8
same_network: true
use_cpu: false
"""
SHARDED = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
dynamo_config:
  dynamo_backend: INDUCTOR
  dynamo_mode: default
  dynamo_use_dynamic: false
  dynamo_use_fullgraph: true
fsdp_config:
  fsdp_activation_checkpointing: false
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_cpu_ram_efficient_loading: true
  fsdp_offload_params: false
  fsdp_reshard_after_forward: true
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_transformer_layer_cls_to_wrap: BertLayer
  fsdp_version: 2
mixed_precision: fp16
num_machines: 1
num_processes: 2
"""
FIRST_SHARDED = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
enable_cpu_affinity: true
fsdp_config:
  fsdp_activation_checkpointing: false
  fsdp_auto_wrap_policy: SIZE_BASED_WRAP
  fsdp_backward_prefetch: BACKWARD_POST
  fsdp_cpu_ram_efficient_loading: false
  fsdp_forward_prefetch: true
  fsdp_min_num_params: 100000000
  fsdp_offload_params: false
  fsdp_reshard_after_forward: FULL_SHARD
  fsdp_state_dict_type: FULL_STATE_DICT
  fsdp_sync_module_states: false
  fsdp_use_orig_params: false
  fsdp_version: 1
mixed_precision: 'no'
num_machines: 1
num_processes: 2
"""
DIMENSIONS = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
num_processes: 4
parallelism_config:
  parallelism_config_cp_backend: torch
  parallelism_config_cp_comm_strategy: allgather
  parallelism_config_cp_size: 1
  parallelism_config_dp_replicate_size: 1
  parallelism_config_dp_shard_size: 2
  parallelism_config_sp_size: 1
  parallelism_config_tp_size: 2
"""
OLD = '{"compute_environment": "LOCAL_MACHINE", "distributed_type": "MULTI_CPU", "fp16": false, "num_processes": 4}'


def load(path: Path, text: str) -> LaunchConfig:
    path.write_text(text)
    return merge([file.from_file({}, path)])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        (ONE_GPU, {"num_processes": 1, "mixed_precision": "bf16"}),
        (
            TWO_MACHINES,
            {
                "num_processes": 4,
                "num_nodes": 2,
                "node_rank": 1,
                "master_addr": "10.0.0.1",
                "port": 29501,
                "gpus": (0, 1, 2, 3),
                "device": "cuda",
                "debug": True,
            },
        ),
        (
            SHARDED,
            {
                "num_processes": 2,
                "mixed_precision": "fp16",
                "strategy": "fsdp",
                "fsdp": {
                    "fsdp_activation_checkpointing": False,
                    "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                    "fsdp_cpu_ram_efficient_loading": True,
                    "fsdp_offload_params": False,
                    "fsdp_reshard_after_forward": True,
                    "fsdp_state_dict_type": "SHARDED_STATE_DICT",
                    "fsdp_transformer_layer_cls_to_wrap": "BertLayer",
                },
                "dynamo_backend": "inductor",
                "dynamo": {"dynamo_use_fullgraph": True},
            },
        ),
        (OLD, {"num_processes": 4, "device": "cpu"}),
        (
            DIMENSIONS,
            {
                "num_processes": 4,
                "strategy": "fsdp",
                "parallelism": {"parallelism_config_dp_shard_size": 2, "parallelism_config_tp_size": 2},
            },
        ),
        (
            FIRST_SHARDED,
            {
                "num_processes": 2,
                "strategy": "fsdp",
                "fsdp": {
                    "fsdp_activation_checkpointing": False,
                    "fsdp_auto_wrap_policy": "SIZE_BASED_WRAP",
                    "fsdp_cpu_ram_efficient_loading": False,
                    "fsdp_min_num_params": 100000000,
                    "fsdp_offload_params": False,
                    "fsdp_reshard_after_forward": "FULL_SHARD",
                    "fsdp_state_dict_type": "FULL_STATE_DICT",
                },
                "cpu_affinity": True,
            },
        ),
        ("fp16: true", {"mixed_precision": "fp16"}),
        ("ipex_config: {ipex: false, use_xpu: 'no'}\nnum_processes: 2", {"num_processes": 2}),
        ("num_processes: -1", {}),
        ("gpu_ids: 1", {"gpus": (1,)}),
        ("gpu_ids: 0,1,2\nnum_processes: 2", {"gpus": (0, 1), "num_processes": 2}),
        ("env: {A: 1}\ngradient_accumulation_steps: 3", {"env": {"A": "1"}, "gradient_accumulation_steps": 3}),
    ],
)
@pytest.mark.smoke
def test_a_file_of_the_peer_loads_as_it_is(path: Path, text: str, expected: dict[str, Any]) -> None:
    assert load(path, text) == LaunchConfig(**expected)


def test_a_file_for_the_first_fsdp_says_what_it_cannot_have(path: Path) -> None:
    (notice,) = load(path, FIRST_SHARDED).notices
    assert notice.startswith(f"{path}: the settings are for FSDP1, but models are sharded by FSDP2")
    assert "fsdp_backward_prefetch, fsdp_forward_prefetch, fsdp_use_orig_params, fsdp_sync_module_states" in notice
    assert load(path, SHARDED).notices == ()
    found = file.from_file({}, path)
    path.write_text(FIRST_SHARDED)
    elsewhere = merge([file.from_file({}, path), file.Layer("call", {"strategy": "ddp"}, {"strategy": "strategy"})])
    assert (found.values["strategy"], elsewhere.notices) == ("fsdp", ())


def test_every_key_of_the_peer_is_known(path: Path) -> None:
    """As its class has them, at the values that it has unasked."""
    plain = ClusterConfig("LOCAL_MACHINE", "NO", "no", False, False)
    path.write_text(yaml.safe_dump({**vars(plain), "compute_environment": "LOCAL_MACHINE", "distributed_type": "NO"}))
    assert file.read(path)["distributed_type"] == "NO"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("num_proceses: 2", ["num_proceses is not a setting; did you mean num_processes?"]),
        ("num_processes: two", ["num_processes must be a whole number, not 'two'"]),
        ("mixed_precision: fp64", ["mixed_precision='fp64' is unknown"]),
        ("distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 4}", ["zero_optimization.stage: 4 must be 0"]),
        ("deepspeed_config: {zero_stag: 2}", ["deepspeed_config.zero_stag", "did you mean zero_stage?"]),
        ("deepspeed_config: {deepspeed_hostfile: hosts}", ["deepspeed_hostfile", "on each machine"]),
        ("distributed_type: MULTI_NPU", ["there are NO, MULTI_CPU, MULTI_GPU, FSDP"]),
        ("compute_environment: AMAZON_SAGEMAKER", ["AMAZON_SAGEMAKER", "LOCAL_MACHINE"]),
        ("tpu_name: pod", ["tpu_name", "gcloud"]),
        ("num_machines: 2\nnum_processes: 3", ["num_processes: 3", "can't be divided equally"]),
        ("distributed_type: NO\nnum_processes: 2", ["num_processes contradicts distributed_type"]),
        ("distributed_type: MULTI_GPU\nuse_cpu: true", ["use_cpu contradicts distributed_type"]),
        ("fsdp_config: {fsdp_version: 3}", ["fsdp_version: 3 is unknown", "write 2"]),
        ("fsdp_config: {fsdp_reshard_after_forward: NO_SHARD}", ["NO_SHARD", "MULTI_GPU"]),
        ("fsdp_config: {fsdp_reshard_after_forward: FUL_SHARD}", ["'FUL_SHARD' is unknown"]),
        ("fsdp_config: {fsdp_state_dict_type: LOCAL_STATE_DICT}", ["LOCAL_STATE_DICT", "use SHARDED_STATE_DICT"]),
        ("fp8_config: {backend: TE}\nmixed_precision: fp8", ["fp8_config", "AORecipeKwargs"]),
        ("ipex_config: {ipex: true}", ["ipex_config", "torch itself"]),
        ("mpirun_config: {mpirun_hostfile: hosts}", ["mpirun_config", "num_machines"]),
        ("additional_args: {}\ncompute_environment: AMAZON_SAGEMAKER", ["AMAZON_SAGEMAKER", "LOCAL_MACHINE"]),
        ("fsdp_config: {fsdp_sharding_strategy: NO_SHARD}", ["NO_SHARD", "MULTI_GPU"]),
        ("fsdp_config: {fsdp_ofload_params: true}", ["fsdp_ofload_params", "did you mean fsdp_offload_params?"]),
        (
            "fsdp_config: {offload_params: true}",
            ["fsdp_config has keys that begin with fsdp_, and not 'offload_params'"],
        ),
        (
            "fsdp_config: {fsdp_use_orig_params: false, fsdp_version: 2}",
            ["fsdp_use_orig_params: False would have no effect", "FSDP2"],
        ),
        ("schema_version: 2", ["a newer version of notebook-accel has written it", "pip install -U"]),
        ("schema_version: one", ["schema_version: 'one' must be 1"]),
        ("[1, 2", ["it is not valid YAML"]),
        ("just words", ["lines such as `num_processes: 2`"]),
        ("2: 3", ["lines such as `num_processes: 2`"]),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_file_that_cannot_work_says_where_and_why(path: Path, text: str, parts: list[str]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load(path, text)
    assert str(refused.value).startswith(f"{path}: ")
    assert all(part in str(refused.value) for part in parts), str(refused.value)


def test_a_value_knows_its_key_and_its_file(path: Path) -> None:
    assert str(load(path, "use_cpu: true").sources["device"]) == f"use_cpu in {path}"


def test_no_file_says_nothing(tmp_path: Path) -> None:
    assert file.from_file({"XDG_CONFIG_HOME": str(tmp_path)}) == file.Layer("file")


def test_a_file_that_is_named_must_be_there(path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"NOTEBOOK_ACCEL_CONFIG_FILE names .* no such file"):
        file.from_file({"NOTEBOOK_ACCEL_CONFIG_FILE": str(path)})
    path.write_text("num_processes: 2")
    assert file.from_file({"NOTEBOOK_ACCEL_CONFIG_FILE": str(path)}).values == {"num_processes": 2}


@pytest.mark.parametrize(
    "text", [ONE_GPU, TWO_MACHINES, SHARDED, FIRST_SHARDED, OLD, "env: {A: b}", "device: cuda\nnum_processes: 1"]
)
def test_what_is_written_reads_the_same(path: Path, text: str) -> None:
    config = load(path, text)
    file.write(path, {key: told.value for key, told in from_config(config).items()})
    assert yaml.safe_load(path.read_text())["schema_version"] == 1
    assert merge([file.from_file({}, path)]) == config


def test_a_change_is_seen_and_nothing_else_is_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    parse = yaml.load
    monkeypatch.setattr(yaml, "load", lambda text, loader: parsed.append(text) or parse(text, loader))
    assert [load(path, "num_processes: 2").num_processes, file.read(path)["num_processes"]] == [2, 2]
    assert len(parsed) == 1
    file.write(path, {"num_processes": 3})
    assert file.read(path)["num_processes"] == 3


def test_an_edit_of_the_same_size_is_seen(path: Path) -> None:
    """In its place, as many editors write."""
    assert load(path, "num_processes: 2").num_processes == 2
    before = path.stat()
    path.write_text("num_processes: 3")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))  # the clock of files may not have ticked
    after = path.stat()
    assert (after.st_size, after.st_ino) == (before.st_size, before.st_ino)
    assert file.read(path) == {"num_processes": 3}


def test_others_may_not_read_it(path: Path) -> None:
    file.write(path, {"env": {"TOKEN": "secret"}})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_can_not_be_written_leaves_the_file_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text("num_processes: 2")

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        file.write(path, {"num_processes": 3})
    assert (path.read_text(), os.listdir(path.parent)) == ("num_processes: 2", ["config.yaml"])


def test_what_is_written_is_on_the_disk_before_it_takes_the_files_place(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Any] = []
    fsync, replace = os.fsync, os.replace

    def noting_fsync(fd: int) -> None:
        done.append((os.fstat(fd).st_ino, os.fstat(fd).st_size))
        fsync(fd)

    def noting_replace(source: str, target: Path) -> None:
        done.append("replaced")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "replace", noting_replace)
    file.write(path, {"num_processes": 2})
    assert done == [(path.stat().st_ino, path.stat().st_size), "replaced"]


def test_a_folder_that_can_not_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "config.yaml"  # root may write to any folder, but not to a file
    with pytest.raises(ConfigurationError, match=r"can't be written: .* NOTEBOOK_ACCEL_CONFIG_FILE or --config_file"):
        file.write(path, {})


def test_a_link_to_the_file_stays_one(path: Path) -> None:
    target = path.with_name("elsewhere.yaml")
    target.touch()
    path.symlink_to(target)
    file.write(path, {"num_processes": 3})
    assert path.is_symlink()
    assert "num_processes: 3" in target.read_text()


def test_a_user_without_a_home_has_no_file_and_is_told_so_when_one_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", records.VARIABLE):
        monkeypatch.delenv(name, raising=False)
    assert file.from_file({}).values == {}
    with pytest.raises(ConfigurationError, match=r"no-home.* can't be written"):
        file.write(file.location({}), {"num_processes": 2})
    assert records.all_records() == []
    with pytest.raises(OSError, match="no-home"):
        records.create("0123456789ab", 0.0)
