"""`job.metrics`: every report, in memory or from the file, in its order."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import psutil
import pytest

from notebook_accel.errors import JobLostError
from notebook_accel.events import AttemptStarted, Metrics
from notebook_accel.launch.job import report_log
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.journal import pruning, writing
from notebook_accel.launch.journal.writing import Journal
from tests.launch.journal.cases import followed


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of jobs, with journals that are written at each refresh."""
    monkeypatch.setenv("NOTEBOOK_ACCEL_STATE", str(tmp_path / "state"))
    for name, value in {"FIRST_WRITE": 0.0, "WRITE_INTERVAL": 0.0, "WRITE_SHARE": 1e9}.items():
        monkeypatch.setattr(writing, name, value)
    return tmp_path / "state" / "jobs"


def report(job: Job, steps: range) -> None:
    for step in steps:
        for rank in range(2):
            job.apply(rank, Metrics({"loss": float(step)}, step, at=job.started + step))


def steps(job: Job) -> list[list[int]]:
    table = job.metrics
    return [table[table["rank"] == rank]["step"].tolist() for rank in range(2)]  # type: ignore[call-overload]


def test_rows_have_what_was_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job("f", 1, 1)
    job.apply(0, Metrics({"loss": 1.0, "accuracy": 0.5}, 0, at=job.started + 1.0))
    job.apply(0, Metrics({"loss": 0.5}, 1, at=job.started + 2.0))
    table = job.metrics
    assert list(table.columns) == ["rank", "step", "seconds", "loss", "accuracy"]  # type: ignore[union-attr]
    assert table["accuracy"].isna().tolist() == [False, True]  # type: ignore[call-overload]
    monkeypatch.setitem(sys.modules, "pandas", None)
    rows = job.metrics
    assert [{**row, "seconds": round(row["seconds"])} for row in rows] == [  # type: ignore[arg-type]
        {"rank": 1, "step": 0, "seconds": 1, "loss": 1.0, "accuracy": 0.5},
        {"rank": 1, "step": 1, "seconds": 2, "loss": 0.5},
    ]


def test_attempts_are_told_apart() -> None:
    job = Job("f", 0, 1)
    for attempt in range(2):
        job.apply(None, AttemptStarted(attempt))
        job.apply(0, Metrics({"loss": float(attempt)}, 0))
    assert job.metrics[["attempt", "loss"]].to_numpy().tolist() == [[0, 0], [1, 1]]  # type: ignore[call-overload]
    assert job.ranks[0].metrics == {"loss": 1.0}


@pytest.mark.parametrize("limit", [0, 10**9], ids=["from the file", "from memory"])
def test_every_report_is_there_during_a_job_after_it_and_for_whoever_attaches(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_log, "MOST_IN_MEMORY", limit)
    job = Job("train", 0, 2)
    journal = Journal(job)
    record = journal.open()
    report(job, range(100))
    journal.refresh()
    report(job, range(100, 150))
    assert steps(job) == [list(range(150))] * 2
    assert steps(followed(record)) == [list(range(100))] * 2
    report(job, range(150, 200))
    job.finish(Status.DONE)
    for ended in (job, followed(record)):
        assert steps(ended) == [list(range(200))] * 2
        assert ended.report_log.needs_store == (limit == 0)
    assert record.reports.stat().st_mode & 0o777 == 0o600
    assert str(record.reports) not in [file.path for file in psutil.Process().open_files()]


def test_reports_in_a_file_outlive_twenty_other_jobs_as_long_as_the_job_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(report_log, "MOST_IN_MEMORY", 0)
    monkeypatch.setattr(pruning, "MOST_JOBS", 2)
    job = Job("train", 0, 2)
    record = Journal(job).open()
    report(job, range(10))
    job.finish(Status.DONE)
    for _ in range(3):
        other = Job("other", 0, 1)
        Journal(other).open()
        other.finish(Status.DONE)
    assert steps(job) == [list(range(10))] * 2
    del job
    gc.collect()
    pruning.prune()
    assert not record.path.exists()


def test_reports_whose_file_is_gone_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_log, "MOST_IN_MEMORY", 0)
    job = Job("train", 0, 2)
    record = Journal(job).open()
    report(job, range(10))
    job.finish(Status.DONE)
    record.remove()
    with pytest.raises(JobLostError, match=r"reports can't be read: .* too many for memory"):
        _ = job.metrics


def test_without_a_journal_many_reports_are_in_a_file_that_goes_with_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_log, "MOST_IN_MEMORY", 0)
    monkeypatch.setattr(writing, "MOST_UNRECORDED", 1000)
    monkeypatch.setattr(writing, "warned", True)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "file").touch()
    monkeypatch.setenv("NOTEBOOK_ACCEL_STATE", str(tmp_path / "file"))
    job = Job("train", 0, 2)
    journal = Journal(job)
    for start in range(0, 300, 100):
        report(job, range(start, start + 100))
        journal.refresh()
    assert job.report_log.size < 2000
    (folder,) = tmp_path.glob("notebook-accel-*")
    assert folder.stat().st_mode & 0o777 == 0o700
    job.finish(Status.DONE)
    assert steps(job) == [list(range(300))] * 2
    del job, journal
    gc.collect()
    assert not folder.exists()


def test_reports_are_read_piece_by_piece_also_those_that_only_the_file_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_log, "MOST_IN_MEMORY", 4000)
    job = Job("train", 0, 2)
    journal = Journal(job)
    seen: list[float] = []
    for begin in range(0, 400, 100):
        report(job, range(begin, begin + 100))
        journal.refresh()
        new = [row.values["loss"] for _, reports in job.report_log.since(len(seen)) for row in reports.rows()]
        seen += new
    assert job.report_log.needs_store
    assert seen == [float(step) for step in range(400) for _ in range(2)]
    assert list(job.report_log.since(len(seen))) == []
