"""Loggers that speak once, whatever the number of ranks."""

from __future__ import annotations

import io
import logging
from typing import Any

import pytest

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.ranks.logging import get_logger
from notebook_accel.train.ranks.state import PartialState
from tests.train.conftest import Ranks


def place(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    values = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)


def test_it_works_before_there_is_an_accelerator(caplog: pytest.LogCaptureFixture) -> None:
    get_logger("tests.logging", "INFO").info("from %s", "here")
    assert caplog.messages == ["from here"]
    assert PartialState.settled() is None


def test_the_line_that_is_named_is_the_callers(caplog: pytest.LogCaptureFixture) -> None:
    logger = get_logger("tests.logging", "INFO")
    logger.info("by method")
    logger.log(logging.INFO, "by level")
    logger.warning_once("once")
    logger.info("in order", in_order=True)
    assert {(record.filename, record.funcName) for record in caplog.records} == {
        ("test_logging.py", "test_the_line_that_is_named_is_the_callers")
    }


@pytest.mark.parametrize(
    ("rank", "arguments", "expected"),
    [
        (0, {}, ["hello"]),
        (1, {}, []),
        (0, {"main_process_only": False}, ["[RANK 0] hello"]),
        (1, {"main_process_only": False}, ["[RANK 1] hello"]),
    ],
)
def test_only_rank_0_logs_by_default(
    rank: int,
    arguments: dict[str, Any],
    expected: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    place(monkeypatch, rank)
    get_logger("tests.logging", "INFO").info("hello", **arguments)
    assert caplog.messages == expected


def test_a_level_is_taken_from_the_argument_or_the_environment(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    get_logger("tests.logging.quiet", "error").warning("no")
    monkeypatch.setenv("ACCELERATE_LOG_LEVEL", "debug")
    get_logger("tests.logging.loud").debug("yes")
    assert caplog.messages == ["yes"]


def test_a_warning_once_is_given_once_for_each_text(caplog: pytest.LogCaptureFixture) -> None:
    logger = get_logger("tests.logging", "INFO")
    for number in (1, 2, 1, 2):
        logger.warning_once("number %d", number)
    assert caplog.messages == ["number 1", "number 2"]


def test_in_order_needs_ranks_that_have_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    place(monkeypatch, 1)
    with pytest.raises(ConfigurationError, match="make the Accelerator"):
        get_logger("tests.logging", "INFO").info("turn", in_order=True)


def test_ranks_speak_one_after_the_other(ranks: Ranks) -> None:
    def speak() -> str:
        out = io.StringIO()
        logging.basicConfig(stream=out, format="%(message)s", level="INFO", force=True)
        state = PartialState()
        get_logger("rank").info("turn of %d", state.process_index, in_order=True)
        return out.getvalue()

    assert ranks(speak, size=2) == ["[RANK 0] turn of 0\n", "[RANK 1] turn of 1\n"]
