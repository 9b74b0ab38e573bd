import os

import pytest

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.helpers import environ
from notebook_accel.train.helpers.probes import compare_versions, is_torch_version


@pytest.mark.parametrize(("text", "answer"), [("Yes", 1), ("t", 1), ("ON", 1), ("0", 0), ("false", 0), ("n", 0)])
def test_words_say_yes_or_no(text: str, answer: int) -> None:
    assert environ.str_to_bool(text) == answer
    assert environ.str_to_bool(text, to_bool=True) is bool(answer)


def test_other_words_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="'perhaps' is neither true nor false"):
        environ.str_to_bool("perhaps")


def test_variables_are_read_with_a_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAG", "yes")
    monkeypatch.setenv("NUMBER", "7")
    assert environ.parse_flag_from_env("FLAG")
    assert not environ.parse_flag_from_env("NO_FLAG")
    assert environ.parse_choice_from_env("FLAG") == "yes"
    assert environ.parse_choice_from_env("NO_FLAG") == "no"
    assert environ.get_int_from_env(["NO_NUMBER", "NUMBER"], 1) == 7
    assert environ.get_int_from_env(["NO_NUMBER"], 1) == 1
    assert environ.are_libraries_initialized("os", "no_such_library") == ["os"]


def test_variables_are_set_for_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLOR", "red")
    with environ.patch_environment(color="blue", shape=4):
        assert (os.environ["COLOR"], os.environ["SHAPE"]) == ("blue", "4")
    assert (os.environ["COLOR"], "SHAPE" in os.environ) == ("red", False)
    with pytest.raises(ZeroDivisionError), environ.patch_environment(color="green"):
        _ = 1 / 0
    assert (os.environ["COLOR"], "SHAPE" in os.environ) == ("red", False)
    with environ.clear_environment():
        assert not os.environ
        os.environ["SHAPE"] = "5"
    assert (os.environ["COLOR"], "SHAPE" in os.environ) == ("red", False)


def test_versions_are_compared_as_versions() -> None:
    assert compare_versions("pytest", ">=", "8.4")
    assert not compare_versions("pytest", "<", "8.4")
    assert is_torch_version(">=", "2.6")
    assert is_torch_version("<", "10.0.1")
    with pytest.raises(ConfigurationError, match="must be one of >, >=, ==, !=, <=, <"):
        compare_versions("pytest", "=>", "1")
