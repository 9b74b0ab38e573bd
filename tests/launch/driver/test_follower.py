"""A job that is followed through its journal: what its ranks wrote is shown, whatever attempt they wrote it in."""

from __future__ import annotations

from pathlib import Path

import pytest

from notebook_accel.events import AttemptStarted, Lines
from notebook_accel.launch.driver.follower import Follower
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.journal.writing import Journal


def test_lines_of_a_rank_that_the_next_attempt_no_longer_has_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NOTEBOOK_ACCEL_STATE", str(tmp_path))
    monkeypatch.setenv("NOTEBOOK_ACCEL_VIEW", "none")
    job = Job("train", 0, 2)
    record = Journal(job).open()
    job.apply(None, AttemptStarted(0, 2))
    for rank in range(2):
        job.apply(rank, Lines("stdout", [f"rank {rank} begins"]))
    job.finish(Status.DONE)
    reading = Follower(record)
    reading.job.apply(None, AttemptStarted(1, 1))  # as if it came with the lines, before they are shown
    reading.open()
    reading.run()
    assert "[1] rank 1 begins" in capsys.readouterr().out
