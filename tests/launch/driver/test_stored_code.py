"""What is stored with a job that saves checkpoints."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from notebook_accel.config import LaunchConfig
from notebook_accel.launch.driver import stored_code
from notebook_accel.launch.driver.launcher import BLOCKING
from notebook_accel.launch.journal.saved_launch import SavedLaunch
from notebook_accel.launch.show import console
from notebook_accel.launch.wire import payload
from tests.launch.journal.cases import Notices


def save(arguments: bytes) -> SavedLaunch:
    with payload.pack(len, (arguments,), {}) as packed:
        config = LaunchConfig(checkpoint_dir="run")
        return stored_code.save(config, packed, len, "len", BLOCKING, lambda: [b"arguments"])


@pytest.fixture
def notices(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    shown = Notices()
    monkeypatch.setattr(console, "current", shown)
    return shown.told


@pytest.mark.parametrize("size", [10, 10_000_000])
def test_the_parts_of_a_call_make_the_same_payload(
    size: int, notices: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saved = save(bytes(size))
    assert saved.checkpoint_dir == str(tmp_path / "run")
    assert saved.arguments == [b"arguments"]
    with payload.from_parts([memoryview(part) for part in saved.parts]) as packed:
        assert payload.parts_of(packed) == saved.parts
        assert sum(packed.layout) > size
    assert notices == []


def test_a_call_that_is_too_large_is_not_stored_and_the_launch_says_so(
    notices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_code, "MOST_BYTES", 2**20)
    saved = save(os.urandom(2**21))
    assert not saved.parts
    assert not saved.arguments
    (notice,) = notices
    assert "len() uses 2 MB of data, but at most 1 MB is stored with a job" in notice


def test_only_a_function_that_the_notebook_has_by_its_name_is_named(notices: list[str]) -> None:
    with payload.pack(len, ("x",), {}) as packed:
        for function in (len, partial(len), lambda: None):
            saved = stored_code.save(LaunchConfig(checkpoint_dir="run"), packed, function, "f", BLOCKING, list)
            assert saved.function == ""
