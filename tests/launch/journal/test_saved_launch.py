"""What is needed to launch a job again: written privately, and read only if nobody else can have written it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from notebook_accel.config import LaunchConfig
from notebook_accel.errors import JobLostError
from notebook_accel.launch.driver.launcher import BLOCKING
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.journal import saved_launch
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.journal.saved_launch import SavedLaunch
from notebook_accel.launch.journal.writing import Journal

SAVED = SavedLaunch(
    LaunchConfig(num_processes=3, gpus=(0, 1), checkpoint_dir="run"),
    checkpoint_dir="/run",
    name="train",
    mode=BLOCKING,
    function="train",
    definitions={"train": "def train(): ..."},
    folder="/",
    parts=[b"head", b"call", b"x" * 100_000],
    arguments=[b"arguments", b""],
    rules=[b"rules"],
)


@pytest.fixture
def record(state: Path, job: Job) -> Record:
    return Journal(job, saved=SAVED).open()


def test_it_is_read_as_it_was_written(record: Record) -> None:
    assert saved_launch.read(record) == SAVED
    assert record.saved_launch.stat().st_mode & 0o777 == 0o600
    assert record.head().checkpoint_dir == "/run"


@pytest.mark.parametrize("status", [status for status in Status if status.ended])
def test_it_is_kept_until_the_job_is_done(record: Record, job: Job, status: Status) -> None:
    job.finish(status)
    assert record.saved_launch.exists() == (status is not Status.DONE)
    if status is Status.DONE:
        with pytest.raises(JobLostError, match="is not stored"):
            saved_launch.read(record)


@pytest.mark.parametrize("name", ["saved_launch", "path"])
def test_what_others_may_have_written_is_not_unpickled(record: Record, name: str) -> None:
    path: Path = getattr(record, name)
    path.chmod(path.stat().st_mode | 0o020)
    with pytest.raises(JobLostError, match="a pickle can run any code"):
        saved_launch.read(record)


@pytest.mark.parametrize("length", [0, 3, 40, 5000, 100_000])
def test_a_torn_file_is_an_error(record: Record, length: int) -> None:
    record.saved_launch.write_bytes(record.saved_launch.read_bytes()[:length])
    with pytest.raises(JobLostError, match="is damaged"):
        saved_launch.read(record)


def test_a_file_of_another_version_is_an_error(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_launch, "FORMAT", saved_launch.FORMAT + 1)
    with pytest.raises(JobLostError, match="another version of notebook_accel: 2, not 3"):
        saved_launch.read(record)


def test_a_call_that_is_not_stored_leaves_no_file(state: Path, job: Job) -> None:
    record = Journal(job, saved=replace(SAVED, parts=())).open()
    assert not record.saved_launch.exists()
    assert record.head().checkpoint_dir == "/run"


def test_a_job_is_recorded_though_its_call_cannot_be_written(
    state: Path, job: Job, notices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: SavedLaunch, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(SavedLaunch, "write", full)
    record = Journal(job, saved=SAVED).open()
    assert record.head().checkpoint_dir
    assert not record.saved_launch.exists()
    (notice,) = notices
    assert "%accelerate resume will not find train()" in notice
    assert "no space left" in notice
