"""Spans of time, and the settings of checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from notebook_accel.config import durations
from notebook_accel.config.environment_variables import from_environment
from notebook_accel.config.resolve import resolve
from notebook_accel.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5 min", 300),
        ("30 s", 30),
        ("8h30m", 30_600),
        ("1 hour 5 minutes", 3900),
        ("2 Days", 172_800),
        ("0.5s", 0.5),
        (" 90 secs ", 90),
    ],
)
def test_a_span_of_time_is_read_as_it_is_written(text: str, seconds: float) -> None:
    assert durations.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "min", "0 s", "5 parsecs", "-5 min", "5 min ago", "1h" * 60])
def test_anything_else_is_none(text: str) -> None:
    assert durations.seconds(text) is None


@pytest.mark.parametrize("every", [500, "5 min", "500 s"])
def test_checkpoints_are_saved_after_steps_or_a_time(every: Any) -> None:
    assert resolve({"checkpoint": "runs", "every": every}).checkpoint_every == every


def test_text_of_digits_is_a_number_of_steps() -> None:
    layer = from_environment({"NOTEBOOK_ACCEL_CHECKPOINT_EVERY": "500"})
    assert layer.values == {"checkpoint_every": 500}


@pytest.mark.parametrize("every", [0, -1, 2.5, True, "often", "0", b"5 min"])
def test_anything_else_is_refused(every: Any) -> None:
    with pytest.raises(ConfigurationError, match="every="):
        resolve({"checkpoint": "runs", "every": every})


def test_a_folder_may_be_a_path_but_not_an_address() -> None:
    assert resolve({"checkpoint": Path("runs", "digits")}).checkpoint_dir == "runs/digits"
    with pytest.raises(ConfigurationError, match="mount the remote"):
        resolve({"checkpoint": "s3://bucket/runs"})
    with pytest.raises(ConfigurationError, match="must be a folder"):
        resolve({"checkpoint": 5})


@pytest.mark.parametrize("options", [{"every": 5}, {"keep": 2}, {"resume": False}])
def test_how_to_save_has_no_effect_without_where(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="would have no effect, since no checkpoints are saved"):
        resolve(options)
