"""Spans of time, and the settings of checkpoints."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from notebook_accel.config import durations, remote_folders
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
    with pytest.raises(ConfigurationError, match=r"every=.* must be a number of steps, such as 500, or a time"):
        resolve({"checkpoint": "runs", "every": every})


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("s3://bucket/runs", 'needs the package s3fs: run pip install "notebook-accel[remote]"'),
        ("abfs://box/runs", "needs the package adlfs: run pip install adlfs"),
        ("s3:/bucket/runs", "is a path on this machine: did you mean s3://bucket/runs?"),
        ("memory://runs", "memory:// is gone when its process ends"),
        ("sftpp://host/runs", "fsspec has no file system sftpp://; did you mean"),
    ],
)
def test_an_address_that_cannot_be_used_says_what_to_install(
    address: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    missing = {"s3fs", "adlfs"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else find(name))
    with pytest.raises(ConfigurationError, match=re.escape(f"checkpoint='{address}'") + ".*" + re.escape(message)):
        resolve({"checkpoint": address})


def test_a_folder_may_be_a_path_or_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve({"checkpoint": Path("runs", "digits")}).checkpoint_dir == "runs/digits"
    assert resolve({"checkpoint": "file:///runs/digits"}).checkpoint_dir == "/runs/digits"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert resolve({"checkpoint": "gs://bucket/digits"}).checkpoint_dir == "gs://bucket/digits"
    with pytest.raises(ConfigurationError, match="must be a folder"):
        resolve({"checkpoint": 5})


@pytest.mark.parametrize("options", [{"every": 5}, {"keep": 2}, {"resume": False}])
def test_how_to_save_has_no_effect_without_where(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="would have no effect, since no checkpoints are saved"):
        resolve(options)


def test_an_address_is_the_same_in_every_working_directory() -> None:
    assert remote_folders.absolute("gs://bucket/digits") == "gs://bucket/digits"
    assert remote_folders.absolute("digits") == str(Path.cwd() / "digits")
