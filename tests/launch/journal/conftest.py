"""A folder of its own for each test's jobs, and journals that are written when the test says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from notebook_accel.launch.job.job import Job
from notebook_accel.launch.journal import writing
from notebook_accel.launch.show import console
from tests.launch.journal.cases import Notices


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the jobs are."""
    monkeypatch.setenv("NOTEBOOK_ACCEL_STATE", str(tmp_path / "state"))
    return tmp_path / "state" / "jobs"


@pytest.fixture(autouse=True)
def at_each_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "FIRST_WRITE", 0.0)
    monkeypatch.setattr(writing, "WRITE_INTERVAL", 0.0)
    monkeypatch.setattr(writing, "WRITE_SHARE", 1e9)


@pytest.fixture
def notices(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the user is told."""
    shown = Notices()
    monkeypatch.setattr(console, "current", shown)
    monkeypatch.setattr(writing, "warned", False)
    return shown.told


@pytest.fixture
def job() -> Job:
    return Job("train", 0, 2, "2 × GPU")
