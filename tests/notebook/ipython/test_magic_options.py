import pytest

from notebook_accel.errors import ConfigurationError
from notebook_accel.notebook.ipython.magic_options import Option, complete, describe, parse

OPTIONS = (
    Option(flags=("-n", "--num-processes"), summary="Ranks.", value="N"),
    Option(flags=("--device",), summary="What they run on.", value="KIND", choices=("cpu", "cuda")),
    Option(flags=("--env",), summary="A variable.", value="NAME=VALUE", repeats=True),
    Option(flags=("--save",), summary="Saves."),
)


@pytest.mark.parametrize(
    ("words", "found", "rest"),
    [
        ([], {}, []),
        (["-n", "2"], {"num_processes": ["2"]}, []),
        (["--num_processes=2", "--save"], {"num_processes": ["2"], "save": []}, []),
        (["--env", "A=1", "--env=B=2"], {"env": ["A=1", "B=2"]}, []),
        (["-n", "-1"], {"num_processes": ["-1"]}, []),
        (["x", "--save", "y"], {"save": []}, ["x", "y"]),
    ],
    ids=str,
)
def test_a_line_is_taken_apart(words: list[str], found: dict[str, list[str]], rest: list[str]) -> None:
    assert parse("%m", OPTIONS, words) == (found, rest)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--num"], "%m has no option --num; did you mean --num-processes?"),
        (["--devise", "cpu"], "did you mean --device?"),
        (["--xyz"], "it has --num-processes, --device, --env, --save"),
        (["-n"], "-n needs a value: -n N"),
        (["-n", "--save"], "-n needs a value: -n N"),
        (["-n", "1", "--num_processes", "2"], "--num_processes is given twice: 1 and 2"),
        (["--save=yes"], "--save takes no value, but got 'yes'"),
    ],
    ids=str,
)
def test_a_line_that_cannot_be_taken_apart_says_why(words: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse("%m", OPTIONS, words)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("words", "prefix", "found"),
    [
        ([], "", ["--num-processes", "--device", "--env", "--save"]),
        ([], "--num_p", ["--num-processes"]),
        (["-n", "2"], "--n", []),
        (["--env", "A=1"], "--e", ["--env"]),
        (["--device"], "", ["cpu", "cuda"]),
        (["--device"], "cu", ["cuda"]),
        ([], "--device=c", ["--device=cpu", "--device=cuda"]),
        (["-n"], "", []),
    ],
    ids=str,
)
def test_what_may_stand_at_the_cursor_is_offered(words: list[str], prefix: str, found: list[str]) -> None:
    assert complete(OPTIONS, words, prefix) == found


def test_options_are_explained_in_columns() -> None:
    assert describe(OPTIONS).splitlines()[0] == "  -n, --num-processes N  Ranks."
    assert (
        len({line.index(option.summary) for line, option in zip(describe(OPTIONS).splitlines(), OPTIONS, strict=True)})
        == 1
    )
