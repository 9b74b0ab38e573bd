"""A configuration file means the same to ranks of a notebook and of the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import accelerate.utils
import pytest

from notebook_accel import notebook_launcher
from notebook_accel.config.environment import FILE_VARIABLE

FILE = """
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
SCRIPT = """
import json, os, sys
name = f"{sys.argv[1]}/{os.environ['RANK']}.json"
found = {name: value for name, value in os.environ.items() if name.startswith(("ACCELERATE_", "FSDP_"))}
json.dump(found, open(name, "w"))
"""


def of_this_rank() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(("ACCELERATE_", "FSDP_"))}


def test_a_file_has_models_sharded_alike_in_a_cell_and_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, script = tmp_path / "settings.yaml", tmp_path / "train.py"
    settings.write_text(FILE)
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "notebook_accel", "launch", "--config_file", settings, script, tmp_path]
    subprocess.run(command, check=True, timeout=100)
    of_command = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    monkeypatch.setenv(FILE_VARIABLE, str(settings))
    of_cell = notebook_launcher(of_this_rank)
    assert of_command == of_cell
    assert of_cell[0]["FSDP_VERSION"] == "2"
    for name, value in of_cell[0].items():
        monkeypatch.setenv(name, value)
    accelerates = accelerate.utils.FullyShardedDataParallelPlugin()
    assert (accelerates.fsdp_version, accelerates.transformer_cls_names_to_wrap) == (2, ["Block"])
