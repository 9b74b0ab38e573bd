"""The table of options, beside the peer's parser."""

import re

import pytest
from accelerate.commands.launch import launch_command_parser
from click.testing import CliRunner

from notebook_accel.advice import instead_of
from notebook_accel.cli.launch import options
from notebook_accel.cli.launch.command import command
from notebook_accel.cli.launch.options import OPTIONS
from notebook_accel.cli.main import main
from notebook_accel.config import keys

BY_NAME = {option.name: option for option in OPTIONS}


def peers() -> list[str]:
    actions = launch_command_parser()._actions
    return [
        string[2:] for each in actions for string in each.option_strings if string[:2] == "--" and "-" not in string[2:]
    ]


def test_every_option_of_the_peer_is_taken_or_has_an_alternative() -> None:
    known = {*BY_NAME, "help"}
    unknown = [name for name in peers() if name not in known and not instead_of(name, "notebook-accel launch")]
    assert not unknown
    assert len(peers()) > 100


def test_options_have_the_short_names_of_the_peer() -> None:
    actions = launch_command_parser()._actions
    for name in BY_NAME.keys() & {*peers()}:
        found = next(each for each in actions if f"--{name}" in each.option_strings)
        short = [string[1:] for string in found.option_strings if len(string) == 2]
        assert [BY_NAME[name].short] == (short or [""]), name


def test_nothing_is_both_taken_and_refused() -> None:
    assert not [option.name for option in OPTIONS if instead_of(option.name, "notebook-accel launch")]


def test_options_may_be_written_with_dashes() -> None:
    for option in OPTIONS:
        found = next(param for param in command.params if param.name == option.name)
        assert {f"--{option.name}", f"--{option.name.replace('_', '-')}"} <= set(found.opts)


def test_the_help_page_has_every_option_once_under_its_group() -> None:
    page = CliRunner().invoke(main, ["launch", "--help"]).output
    for group in options.GROUPS:
        assert f"\n{group}:\n" in page
    rows = re.findall(r"^  (?:-\w, )?--(\w+)", page, re.MULTILINE)
    assert sorted(rows) == sorted(["help", *(option.name for option in OPTIONS if option.help)])


def test_what_only_counts_with_another_names_one_that_is_there() -> None:
    assert {option.only_with for option in OPTIONS} <= {"", *BY_NAME}


def test_what_the_file_can_say_is_an_option_too() -> None:
    elsewhere = {"distributed_type", "use_cpu", "device", "env"}  # --use_fsdp, --cpu; the others need no option
    elsewhere |= {"cluster", "insecure"}  # of a notebook alone
    elsewhere |= {"deepspeed_config"}  # whose keys are options
    assert set(keys.KEYS) - set(BY_NAME) == elsewhere


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("--deepspeed_hostfile", "on each machine"),
        ("--nproc_per_node", "use --num_processes"),
    ],
)
def test_an_option_that_is_not_here_names_the_alternative(written: str, says: str) -> None:
    result = CliRunner().invoke(main, ["launch", written, "1", "train.py"])
    assert result.exit_code == 2
    assert "is not supported" in result.output
    assert says in result.output


def test_an_option_that_nobody_has_brings_the_nearest() -> None:
    result = CliRunner().invoke(main, ["launch", "--num_proceses", "2", "train.py"])
    assert result.exit_code == 2
    assert "--num_processes" in result.output
