"""A configuration means the same to ranks of a notebook and of the command line."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import accelerate.utils
import pytest

from notebook_accel import notebook_launcher
from notebook_accel.config.environment_variables import FILE_VARIABLE
from notebook_accel.launch.server import abandoned

SHARDED = """
num_processes: 2
use_cpu: true
distributed_type: FSDP
mixed_precision: bf16
gradient_accumulation_steps: 4
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: true
  fsdp_offload_params: false
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: Block
  fsdp_state_dict_type: FULL_STATE_DICT
  fsdp_activation_checkpointing: true
  fsdp_cpu_ram_efficient_loading: false
"""
FILES = {
    "what there is": "mixed_precision: 'no'\n",
    "as Accelerate writes it": """
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: MULTI_CPU
downcast_bf16: 'no'
enable_cpu_affinity: false
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: true
""",
    "sharded, compiled, debugged, with variables": f"""{SHARDED}
dynamo_config:
  dynamo_backend: INDUCTOR
  dynamo_mode: max-autotune
  dynamo_use_dynamic: true
debug: true
env:
  OMP_NUM_THREADS: '1'
  MINE: x
""",
}
SCRIPT = """
import json, os, sys
json.dump(dict(os.environ), open(f"{sys.argv[1]}/{os.environ['RANK']}.json", "w"))
"""
OF_ONE_LAUNCH = {"MASTER_PORT", "JAX_COORDINATOR_PORT", "NOTEBOOK_ACCEL_JOB"}
OF_THE_COMMAND = {
    *("COLUMNS", "LINES"),  # the size of its terminal
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",  # as torch's launcher sets it
}
OF_ONE_SERVER = {abandoned.RANK_MARK}
OF_THE_TEST = {FILE_VARIABLE}


def of_this_rank() -> dict[str, str]:
    return dict(os.environ)


@pytest.fixture(autouse=True)
def other_frameworks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages with the names of frameworks whose ranks need variables of their own."""
    for name in ("jax", "tensorflow"):
        (tmp_path / "site" / name).mkdir(parents=True)
        (tmp_path / "site" / name / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))


def without_ports(environ: dict[str, str]) -> dict[str, str]:
    """Each launch has its own."""
    without = {name: value for name, value in environ.items() if name not in OF_ONE_LAUNCH}
    return without | {"TF_CONFIG": re.sub(r":\d+\b", ":", environ["TF_CONFIG"])}


@pytest.mark.parametrize("name", FILES)
def test_a_file_gives_ranks_the_same_environment_in_a_cell_and_by_the_command(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long: each rank of the command imports torch, and what the file asks for."""
    settings, script = tmp_path / "settings.yaml", tmp_path / "train.py"
    settings.write_text(FILES[name])
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "notebook_accel", "launch", "--config_file", settings, script, tmp_path]
    subprocess.run(command, check=True, timeout=100)
    monkeypatch.setenv(FILE_VARIABLE, str(settings))
    for rank, of_cell in enumerate(notebook_launcher(of_this_rank)):
        of_command = json.loads((tmp_path / f"{rank}.json").read_text())
        assert of_cell.keys() >= OF_ONE_LAUNCH <= of_command.keys()
        of_cell, of_command = without_ports(of_cell), without_ports(of_command)
        found = {key: (of_cell.get(key), of_command.get(key)) for key in of_cell.keys() | of_command.keys()}
        differing = {key: values for key, values in found.items() if values[0] != values[1]}
        assert {key: differing[key] for key in differing.keys() - OF_THE_COMMAND - OF_ONE_SERVER - OF_THE_TEST} == {}
        assert "NOTEBOOK_ACCEL_DEVICE" in of_cell


def test_accelerate_reads_what_ranks_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(SHARDED)
    monkeypatch.setenv(FILE_VARIABLE, str(settings))
    given = notebook_launcher(of_this_rank)[0]
    assert given["FSDP_VERSION"] == "2"
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    accelerates = accelerate.utils.FullyShardedDataParallelPlugin()
    assert (accelerates.fsdp_version, accelerates.transformer_cls_names_to_wrap) == (2, ["Block"])
