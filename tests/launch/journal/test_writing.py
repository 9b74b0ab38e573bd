"""How a job is written: seldom, privately, and without harm to the launch."""

from __future__ import annotations

import os
import resource
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from notebook_accel.events import AttemptStarted, Lines, Metrics, Phase, PhaseChanged, ProcessUsage
from notebook_accel.launch.driver.attach import attach, jobs
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.journal import records, writing
from notebook_accel.launch.journal.writing import Journal
from tests.launch.journal.cases import fold, followed, state_of


@contextmanager
def full_disk(room: int = 0) -> Iterator[None]:
    """No file may grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_journal_is_its_users_alone(state: Path, job: Job) -> None:
    record = Journal(job).open()
    job.finish(Status.DONE)
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode) for path in (state, record.path, *record.path.glob("state-*"))
    }
    assert modes == {state.name: 0o700, record.path.name: 0o700, "state-0": 0o600, "state-1": 0o600}


def test_a_folder_that_others_could_read_is_closed_to_them(state: Path, job: Job) -> None:
    state.mkdir(parents=True)
    state.chmod(0o755)
    Journal(job).open()
    assert stat.S_IMODE(state.stat().st_mode) == 0o700


def test_a_short_job_is_written_once(state: Path, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "FIRST_WRITE", 3600.0)
    journal = Journal(job)
    job.apply(None, AttemptStarted(0))
    journal.refresh()
    assert not state.exists()
    job.finish(Status.DONE)
    (record,) = records.all_records()
    assert fold(followed(record)) == fold(job)
    assert not record.is_running()


def test_writing_waits_for_its_time(state: Path, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(job)
    record = journal.open()
    monkeypatch.setattr(writing, "WRITE_INTERVAL", 3600.0)
    journal.refresh()
    before = state_of(record)
    job.apply(0, Metrics({"loss": 1.0}))
    journal.refresh()
    assert state_of(record) == before


def test_a_job_that_somebody_looks_at_is_written_more_often_and_with_what_its_ranks_use(
    state: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "WATCHED_INTERVAL", 0.0)
    monkeypatch.setattr(writing, "WATCHED_SHARE", 1e9)
    journal = Journal(job)
    record = journal.open()
    assert not journal.is_seen
    record.watch()
    journal.refresh()
    assert journal.is_seen
    monkeypatch.setattr(writing, "WRITE_INTERVAL", 3600.0)
    usage = ProcessUsage(180.4, 2**29)
    job.apply(0, usage)
    journal.refresh()
    assert followed(record).ranks[0].process == usage
    monkeypatch.setattr(records, "WATCHED_FOR", -1.0)
    journal.refresh()
    assert not journal.is_seen
    before = state_of(record)
    job.apply(0, PhaseChanged(Phase.RUNNING))
    journal.refresh()
    assert state_of(record) == before


def test_lines_wait_for_nothing_but_the_state_of_their_attempt(
    state: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was shown is there, whenever the process is killed."""
    journal = Journal(job)
    record = journal.open()
    monkeypatch.setattr(writing, "WRITE_INTERVAL", 3600.0)
    journal.refresh()
    before = state_of(record)
    job.apply(0, PhaseChanged(Phase.RUNNING))
    job.apply(0, Lines("stdout", ["shown"]))
    journal.refresh()
    assert (followed(record).log(), state_of(record)) == ("[0] shown\n", before)
    job.apply(None, AttemptStarted(1))
    job.apply(0, Lines("stdout", ["of the next attempt"]))
    journal.refresh()
    assert followed(record).log() == "[0] shown\n"
    job.finish(Status.DONE)
    assert followed(record).log(last=1) == "[0] of the next attempt\n"


def test_of_long_lines_fewer_are_kept_in_memory() -> None:
    state = RankState(0)
    lines = [f"{number} {'x' * 60_000}" for number in range(300)]
    for text in lines:
        state.apply(Lines("stdout", [text]))
    assert 1 < len(state.lines) < 10
    assert [line.text for line in state.lines] == lines[-len(state.lines) :]
    assert state.written == 300
    at_once = RankState(0)
    at_once.apply(Lines("stdout", lines))
    assert at_once == state
    longest = "x" * 2**21
    state.apply(Lines("stdout", [longest]))
    assert [line.text for line in state.lines] == [longest]


def test_a_job_is_asked_to_stop_through_its_folder(state: Path, job: Job) -> None:
    asked: list[int] = []
    job.runner.cancel = lambda: asked.append(1)
    journal = Journal(job)
    record = journal.open()
    journal.refresh()
    assert asked == []
    with full_disk(room=16):
        record.request_stop()
    journal.refresh()
    journal.refresh()
    assert len(asked) == 1
    record.request_stop()
    record.request_stop()
    journal.refresh()
    assert len(asked) == 3


def test_asking_a_job_that_has_ended_does_nothing(state: Path, job: Job) -> None:
    record = Journal(job).open()
    job.finish(Status.DONE)
    record.request_stop()
    assert not record.running.exists()


def test_a_job_tells_other_machines_that_it_lives(state: Path, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "KEEPALIVE_INTERVAL", 0.0)
    journal = Journal(job)
    record = journal.open()
    os.utime(record.running, (0, 0))
    journal.refresh()
    assert time.time() - record.running.stat().st_mtime < 60


@pytest.mark.parametrize("obstacle", ["a file", "no place for files"])
def test_a_folder_that_cannot_be_written_is_told_once_and_harms_nothing(
    tmp_path: Path, notices: list[str], monkeypatch: pytest.MonkeyPatch, obstacle: str
) -> None:
    if obstacle == "a file":
        (tmp_path / "state").touch()
        monkeypatch.setenv("NOTEBOOK_ACCEL_STATE", str(tmp_path / "state"))
    else:
        monkeypatch.setenv("NOTEBOOK_ACCEL_STATE", "/proc")
    for _ in range(2):
        job = Job("train", 0, 1)
        journal = Journal(job)
        journal.refresh()
        job.apply(0, Lines("stdout", ["on"]))
        journal.refresh()
        job.finish(Status.DONE, [1])
        assert job.result() == [1]
    (told,) = notices
    assert told.startswith("train() keeps running, but is not recorded, so attach() won't find it later: [Errno ")
    assert "NOTEBOOK_ACCEL_STATE" in told


def test_a_user_without_a_home_is_told(job: Job, notices: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTEBOOK_ACCEL_STATE", "~nobody-of-this-name/state")
    Journal(job).refresh()
    assert "the user has no home folder" in notices[0]
    assert not os.path.exists("~nobody-of-this-name")


@pytest.mark.parametrize("status", [Status.DONE, Status.FAILED])
def test_a_job_whose_end_found_no_room_is_not_taken_for_one_that_was_killed(
    state: Path, job: Job, notices: list[str], status: Status
) -> None:
    journal = Journal(job)
    record = journal.open()
    with full_disk():
        job.apply(0, Lines("stdout", ["no room"]))
        journal.refresh()
        job.finish(status, error=RuntimeError("no") if status is Status.FAILED else None)
    assert [each.status for each in jobs()] == [status]
    followed = attach(record.id)
    assert followed.status is status
    assert followed.outcome is not None
    assert "could not be recorded" in followed.outcome.error


def test_how_a_job_ended_is_known_though_its_output_has_no_room(state: Path, job: Job, notices: list[str]) -> None:
    record = Journal(job).open()
    with full_disk(room=5000):
        job.apply(0, Lines("stdout", ["x" * 6000]))
        job.finish(Status.FAILED, error=RuntimeError("why"))
    ended = followed(record)
    assert ended.outcome is not None
    assert (ended.outcome.error, ended.log()) == ("why", "")
    assert [each.status for each in jobs()] == [Status.FAILED]


def test_a_job_whose_end_found_room_again_is_whole(state: Path, job: Job, notices: list[str]) -> None:
    journal = Journal(job)
    record = journal.open()
    with full_disk():
        job.apply(0, Lines("stdout", ["no room"]))
        journal.refresh()
    job.finish(Status.DONE)
    assert record.unwritten_end() is None
    assert fold(followed(record)) == fold(job)


def test_a_full_disk_harms_nothing_and_leaves_no_half_a_job(state: Path, job: Job, notices: list[str]) -> None:
    assert signal.getsignal(signal.SIGXFSZ) is signal.SIG_IGN  # so that a full disk is an error
    with full_disk():
        journal = Journal(job)
        journal.refresh()
        job.finish(Status.DONE)
    assert len(notices) == 1
    assert records.all_records() == []


def test_a_disk_that_was_full_for_a_while_has_the_whole_job_at_its_end(
    state: Path, job: Job, notices: list[str]
) -> None:
    journal = Journal(job)
    record = journal.open()
    size = len(state_of(record))
    with full_disk(room=size + 40):
        for step in range(10):
            job.apply(0, Metrics({"loss": 1.0}, step, at=1.0))
            journal.refresh()
    assert len(notices) == 1
    job.finish(Status.DONE)
    assert fold(followed(record)) == fold(job)


def test_a_folder_that_is_removed_while_a_job_runs_harms_nothing(state: Path, job: Job, notices: list[str]) -> None:
    journal = Journal(job)
    record = journal.open()
    record.remove()
    job.apply(0, Lines("stdout", ["on"]))
    journal.refresh()
    job.finish(Status.DONE)
    assert len(notices) == 1
    assert records.all_records() == []
