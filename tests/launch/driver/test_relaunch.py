"""What is refused before a job is launched again."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.driver import relaunch
from notebook_accel.launch.journal.saved_launch import SavedLaunch
from tests.launch.journal.test_saved_launch import SAVED


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SavedLaunch:
    monkeypatch.setattr(sys.modules["__main__"], "train", lambda: None, raising=False)
    return replace(SAVED, checkpoint_dir=str(tmp_path))


@pytest.mark.parametrize("current_code", [False, True])
def test_a_job_whose_folders_are_there_can_be_launched(saved: SavedLaunch, current_code: bool) -> None:
    relaunch.check(saved, current_code=current_code)


@pytest.mark.parametrize(
    ("changes", "current_code", "said"),
    [
        ({"checkpoint_dir": "/gone"}, False, "there is no folder /gone for the checkpoints of train"),
        ({"folder": "/gone"}, False, "was launched in /gone, which no longer exists"),
        ({"python": "3.9"}, False, "was stored by Python 3.9"),
        ({"function": ""}, True, "was not launched as a named function of the notebook"),
        ({"function": "no_such"}, True, "this notebook does not define no_such"),
    ],
)
def test_what_cannot_work_is_refused(
    saved: SavedLaunch, changes: dict[str, Any], current_code: bool, said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        relaunch.check(replace(saved, **changes), current_code=current_code)
    if "checkpoint_dir" not in changes:
        relaunch.check(replace(saved, **changes), current_code=not current_code)
