"""A setting's name in one interface is answered, in another, with what the setting is called there."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from notebook_accel.cli.launch.options import OPTIONS
from notebook_accel.cli.main import main
from notebook_accel.config import file
from notebook_accel.config.keys import KEYS, what_to_write
from notebook_accel.config.settings import SETTINGS
from notebook_accel.errors import ConfigurationError
from notebook_accel.notebook.cells import cell_options
from notebook_accel.notebook.ipython import magic_commands
from notebook_accel.notebook.magics.command import command

MAGIC_OPTIONS = {option for row in SETTINGS.values() for option in row.magic}
COMMAND_LINE_OPTIONS = {option.name for option in OPTIONS}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--gpu_ids 0,2", "there is no option --gpu-ids; did you mean --gpus?"),
        ("--num_machines 2", "did you mean --nodes?"),
        ("--use_fsdp", "did you mean --strategy fsdp?"),
        ("--distributed_type FSDP", "did you mean --strategy?"),
        ("--cpu", "did you mean --device cpu?"),
        ("--every 100", "did you mean --checkpoint-every?"),
        ("--timeout 60", "there is no option --timeout; pass timeout= to notebook_launcher"),
        ("--max-restarts 1", "pass max_restarts= to notebook_launcher"),
        ("--fsdp_offload_params true", "set fsdp_offload_params in the configuration file"),
    ],
)
def test_accelerate_names_its_own_option(option: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        magic_commands.run(command, "%accelerate", option)
    assert message in str(refused.value)


def test_a_cell_on_the_ranks_names_the_line_that_changes_settings() -> None:
    with pytest.raises(ConfigurationError, match="set it with %accelerate --mixed-precision, in another cell"):
        magic_commands.run(cell_options.command, "%%accelerate", "-n 2 --mixed-precision bf16")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--gpus", "--gpus is not supported: use --gpu_ids"),
        ("-n", "-n is not supported: use --num_processes"),
        ("--nodes", "use --num_machines"),
        ("--node_rank", "use --machine_rank"),
        ("--master-addr", "use --main_process_ip"),
        ("--checkpoint", "use --checkpoint_dir"),
        ("--strategy", "use --use_fsdp"),
        ("--device", "use --cpu for the CPU"),
        ("--cluster", "only notebook_launcher has it, as cluster="),
        ("--stall-after", "only notebook_launcher has it, as stall_after="),
    ],
)
def test_launch_names_its_own_option(option: str, message: str) -> None:
    result = CliRunner().invoke(main, ["launch", option, "1", "train.py"])
    assert (result.exit_code, message in " ".join(result.output.split())) == (2, True), result.output


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("strategy", "strategy is not a setting; did you mean distributed_type?"),
        ("gpus", "did you mean gpu_ids?"),
        ("master_addr", "did you mean main_process_ip?"),
        ("stall_after", "stall_after is not a setting of the file; pass stall_after= to notebook_launcher"),
    ],
)
def test_a_file_names_its_own_key(key: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"{key}: 1\n")
    with pytest.raises(ConfigurationError) as refused:
        file.read(path)
    assert message in str(refused.value)


def test_no_setting_is_without_an_answer_at_a_door_that_does_not_have_it() -> None:
    names = {row.argument for row in SETTINGS.values()} | {row.option or row.key for row in KEYS.values()}
    magic = {option.lstrip("-").replace("-", "_") for option in MAGIC_OPTIONS}
    assert [name for name in names - magic - {""} if not what_to_write(f"--{name}", "%accelerate")] == []
    names = (names | magic) - COMMAND_LINE_OPTIONS - {"", "env"}  # --env has an answer of its own
    assert [name for name in names if not what_to_write(f"--{name}", "notebook-accel launch")] == []
