import inspect
import re
from pathlib import Path

import accelerate
import pytest

import notebook_accel
from notebook_accel import errors
from notebook_accel.errors import NotebookAccelError, RankError, RankFailure

KEYWORD_ONLY = {"kwargs": None, "gpus": None, "device": None, "env": None, "timeout": None, "block": True}


def test_these_names_are_public() -> None:
    assert notebook_accel.__all__ == [
        "ConfigurationError",
        "HardwareError",
        "Job",
        "JobCancelledError",
        "LaunchError",
        "NotebookAccelError",
        "PayloadError",
        "RankError",
        "RankTimeoutError",
        "debug_launcher",
        "notebook_launcher",
        "report",
        "set_view",
    ]
    assert all(hasattr(notebook_accel, name) for name in notebook_accel.__all__)


def test_public_names_are_documented() -> None:
    for name in notebook_accel.__all__:
        assert inspect.getdoc(getattr(notebook_accel, name)), name


def test_the_version_is_a_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", notebook_accel.__version__)


def positional(function: object) -> list[tuple[str, object]]:
    parameters = inspect.signature(function).parameters.values()
    return [(each.name, each.default) for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]


@pytest.mark.parametrize("name", ["notebook_launcher", "debug_launcher"])
def test_a_launcher_can_replace_the_peers(name: str) -> None:
    assert positional(getattr(notebook_accel, name)) == positional(getattr(accelerate, name))


def test_what_the_peer_does_not_have_is_keyword_only() -> None:
    parameters = inspect.signature(notebook_accel.notebook_launcher).parameters.values()
    assert {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY} == KEYWORD_ONLY
    assert not any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in parameters)


def test_every_argument_is_documented() -> None:
    described = inspect.getdoc(notebook_accel.notebook_launcher) or ""
    for name in inspect.signature(notebook_accel.notebook_launcher).parameters:
        assert f"\n    {name}: " in described, name


def test_every_error_has_one_base_and_one_of_pythons_own() -> None:
    own = [each for each in vars(errors).values() if getattr(each, "__module__", "") == errors.__name__]
    raised = [each for each in own if each is not RankFailure]
    assert all(issubclass(each, NotebookAccelError) for each in raised)
    pythons = {each.__name__: [base for base in each.__mro__ if base.__module__ == "builtins"] for each in raised}
    assert {name: bases[0].__name__ for name, bases in pythons.items()} == {
        "NotebookAccelError": "Exception",
        "ConfigurationError": "ValueError",
        "HardwareError": "RuntimeError",
        "PayloadError": "TypeError",
        "LaunchError": "RuntimeError",
        "StreamError": "ConnectionError",
        "JobCancelledError": "RuntimeError",
        "RankError": "RuntimeError",
        "RankTimeoutError": "RuntimeError",
    }
    assert issubclass(errors.RankTimeoutError, TimeoutError)


def test_an_error_of_ranks_names_the_first() -> None:
    assert RankError("no").rank is None
    assert RankError("no", [RankFailure((3, 1), "died")]).rank == 3


def test_types_are_shipped() -> None:
    assert (Path(notebook_accel.__file__).parent / "py.typed").is_file()
