from typing import Any

import click
import pytest

from notebook_accel.config import click_options, kinds
from notebook_accel.errors import ConfigurationError
from notebook_accel.notebook.ipython.magic_commands import CodeCommand, MagicCommand, MagicGroup, complete, page, run


@click.command("stop", cls=MagicCommand)
@click.argument("names", nargs=-1, metavar="[NAMES]")
@click.pass_obj
def stop(shell: str, names: tuple[str, ...]) -> Any:
    """Stops."""
    return shell, names


@click.command("debug", cls=CodeCommand)
@click.argument("rank")
@click.argument("code", required=False)
def debug(rank: str, code: str | None) -> Any:
    """Debugs."""
    return rank, code


@click.group(
    cls=MagicGroup,
    invoke_without_command=True,
    commands=[stop, debug],
    params=[
        click_options.option(["-n", "--num-processes"], kinds.integer(1), "Ranks."),
        click_options.option(["--device"], kinds.device("cpu", "cuda"), "What they run on."),
        click_options.option(["--env"], kinds.environment, "A variable.", several=True),
        click_options.option(["--save"], kinds.flag, "Saves.", flag=True),
    ],
)
def magic(**given: Any) -> Any:
    """Does it."""
    return {name: value for name, value in given.items() if value not in (None, ())}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("", {}),
        ("-n 2", {"num_processes": "2"}),
        ("--num_processes=2 --save", {"num_processes": "2", "save": True}),
        ("--env A=1 --env='B=2 3'", {"env": ("A=1", "B=2 3")}),
        ("-n -1", {"num_processes": "-1"}),
        ("-n=2", {"num_processes": "2"}),
        ("-n 2  # as many as there are", {"num_processes": "2"}),
        ("--env A=#1", {"env": ("A=#1",)}),
        ("stop x_y 'a b'", ("the shell", ("x_y", "a b"))),
        ("debug 0 p {'a b': 1}['a b'] ;; -x --y_z", ("0", "p {'a b': 1}['a b'] ;; -x --y_z")),
    ],
    ids=str,
)
def test_a_line_is_parsed_and_its_value_returned(line: str, value: object) -> None:
    assert run(magic, "%m", line, "the shell") == value


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--num", "%m: there is no option --num; did you mean --num-processes?"),
        ("--devise cpu", "did you mean --device?"),
        ("--xyz", "there are --num-processes, --device, --env, --save, --help"),
        ("-n", "%m: -n needs a value: N"),
        ("-n 1 --num_processes 2", "%m: -n is given twice"),
        ("--save=yes", "%m: Option '--save' does not take a value."),
        ("stpo", "%m: there is no subcommand 'stpo'; did you mean stop?"),
        ("xyz", "there is no subcommand 'xyz'; choose one of stop, debug"),
        ("stop --now", "%m stop: there is no option --now; it takes no options"),
        ("debug", "%m debug: Missing argument 'RANK'."),
        ("--env 'A=b", "%m --env 'A=b: a quote is not closed"),
        ("-n 2 \\", "it ends in a backslash: write all options on one line"),
        ("\N{EN DASH}n 2", "begins with a dash: write options with a hyphen, as in -n"),
        ("--device", "%m: --device needs a value: cpu|cuda"),
    ],
)
def test_a_line_that_cannot_be_parsed_says_why(line: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        run(magic, "%m", line)
    assert message in str(refused.value)


def test_an_error_of_the_command_is_not_taken_for_one_of_the_line() -> None:
    @click.command(cls=MagicCommand)
    def fails() -> None:
        raise ValueError("its own")

    with pytest.raises(ValueError, match=r"^its own$"):
        run(fails, "%m", "")


@pytest.mark.parametrize(
    ("words", "start", "found"),
    [
        ([], "", ["-n", "--num-processes", "--device", "--env", "--save", "-h", "--help", "stop", "debug"]),
        ([], "--num_p", ["--num-processes"]),
        (["-n", "2"], "--n", []),
        (["--env", "A=1"], "--e", ["--env"]),
        (["--device"], "", ["cpu", "cuda"]),
        (["--device"], "cu", ["cuda"]),
        ([], "--device=c", ["--device=cpu", "--device=cuda"]),
        ([], "--unknown=", []),
        (["-n"], "", []),
        (["-n", "1", "-n", "2"], "--d", ["--device"]),
        (["--unknown"], "--d", ["--device"]),
        ([], "st", ["stop"]),
        (["stop"], "--h", ["--help"]),
    ],
    ids=str,
)
def test_what_may_stand_at_the_cursor_is_offered(words: list[str], start: str, found: list[str]) -> None:
    offered = complete(magic, None, words, start)
    assert [name for name in offered if len(name) > 2] == [name for name in found if len(name) > 2]


def test_help_is_printed_and_nothing_exits(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(magic, "%m", "help stop") is None
    assert "Usage: %m stop [OPTIONS]" in capsys.readouterr().out
    assert run(magic, "%m", "--help") is None
    assert capsys.readouterr().out.strip() == page(magic, "%m")
    assert "-n, --num-processes N  Ranks." in page(magic, "%m")
    assert "stop [NAMES]  Stops." in page(magic, "%m")
    run(magic, "%m", "stop -h")
    assert "Usage: %m stop" in capsys.readouterr().out
