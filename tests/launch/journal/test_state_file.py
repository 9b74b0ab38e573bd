"""States of jobs on disk as crashes, other versions, and strangers leave them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from notebook_accel.errors import JobLostError
from notebook_accel.events import AttemptStarted, Heartbeat, JobEnded, Metrics, Phase, PhaseChanged
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.journal import state_file
from notebook_accel.launch.journal.followed_job import FollowedState
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.journal.state_file import NAMES, StateReader, StoredState, encode
from notebook_accel.launch.journal.writing import Journal
from tests.launch.journal.cases import followed, put_state, state_of


@pytest.fixture
def record(state: Path, job: Job) -> Record:
    """Of a job that runs."""
    journal = Journal(job)
    record = journal.open()
    job.apply(None, AttemptStarted(0))
    job.apply(1, Heartbeat(1))
    journal.refresh()
    return record


def add(record: Record, data: bytes) -> None:
    put_state(record, state_of(record) + data)


def resident(job: Job) -> list[int]:
    return [state.resident for state in job.ranks]


LINE = encode(1, Heartbeat(2))


def test_a_last_line_that_is_cut_off_is_left_out(record: Record) -> None:
    add(record, LINE[:-5])
    assert resident(followed(record)) == [0, 1]
    assert StoredState.read(record.path).ends()[1] is None


@pytest.mark.parametrize(
    "line",
    [
        b'{"kind":"dance","steps":3}',
        b'{"rank":1,"kind":"heartbeat","resident":3,"color":"red"}',
        b'{"rank":1}',
        b"[1, 2]",
        b"[" * 100_000,
        b"\0\0\0\0",
        b"\xff\xfe",
        b"",
    ],
)
def test_a_line_that_this_version_does_not_know_is_passed_over(record: Record, line: bytes) -> None:
    add(record, line + b"\n" + LINE)
    assert resident(followed(record)) == [0, 2]


@pytest.mark.parametrize(
    "line",
    [
        {"kind": "end", "status": "bogus", "at": 1.0, "error": "", "error_type": ""},
        {"kind": "end", "status": "done", "at": None, "error": [], "error_type": 5},
        {"rank": 0, "kind": "phase", "phase": 5},
        {"rank": 0, "kind": "metrics", "values": [1], "step": "x", "at": "y"},
        {"kind": "job", "id": "0", "name": "train", "first": 0, "size": 10**12, "world_size": 2, "hardware": "",
         "label": None, "at": 0.0, "local_size": 0},
        {"kind": "job", "id": "0", "name": "train", "first": 0, "size": "many", "world_size": 2, "hardware": "",
         "label": None, "at": 0.0, "local_size": 0},
    ],
    ids=str,
)  # fmt: skip
def test_a_line_whose_values_cannot_be_is_passed_over(record: Record, line: dict[str, object]) -> None:
    add(record, json.dumps(line).encode() + b"\n" + LINE)
    assert resident(followed(record)) == [0, 2]


@pytest.mark.parametrize("rank", [2, -1, "0", 0.5, True])
def test_a_line_of_a_rank_that_there_is_not_is_passed_over(record: Record, rank: object) -> None:
    add(record, encode(rank, Heartbeat(9)) + LINE)  # type: ignore[arg-type]
    assert resident(followed(record)) == [0, 2]


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ('{"format":0}', "another version of notebook_accel, in format 0; this version reads format 3"),
        ('{"format":4,"owner":5}', "another version of notebook_accel, in format 4; this version"),
        ('{"format":3,"owner":5}', "has no valid first line"),
        ("[]", "has no valid first line"),
        ("", "has no valid first line"),
    ],
)
def test_a_journal_of_another_format_is_refused(record: Record, head: str, why: str) -> None:
    put_state(record, f"{head}\n".encode())
    with pytest.raises(JobLostError, match=why):
        followed(record)
    with pytest.raises(JobLostError, match=why):
        StoredState.read(record.path).ends()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_state_that_was_half_written_when_its_process_was_killed_is_passed_over(
    state: Path, job: Job, share: float
) -> None:
    """The one before is still there."""
    journal = Journal(job)
    record = journal.open()
    for number in (1, 2, 3):
        job.apply(0, Heartbeat(number))
        journal.refresh()
    before, last = (record.path / name for name in NAMES)
    reader = FollowedState(record)
    reader.read_state()
    assert resident_of(reader) == 3
    whole = last.read_bytes()
    cut = int(len(whole) * share)
    last.write_bytes(whole[:cut] + bytes(len(whole) - cut))
    assert resident(followed(record)) == [2, 0]
    reader = FollowedState(record)
    reader.read_state()
    last.write_bytes(whole)
    reader.read_state()
    assert resident_of(reader) == 3, "it is read again, though its head was there before"
    before.unlink()
    assert resident(followed(record)) == [3, 0]


def resident_of(reader: FollowedState) -> int:
    return reader.job.ranks[0].resident


def test_a_journal_that_is_not_there_is_refused(record: Record) -> None:
    record.remove()
    with pytest.raises(JobLostError, match=r"its journal can't be read: .*No such file"):
        followed(record)
    with pytest.raises(JobLostError, match=r"its journal can't be read: .*No such file"):
        StoredState.read(record.path).ends()


def test_of_a_state_that_has_changed_a_little_little_is_encoded_and_decoded(
    state: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(job)
    record = journal.open()
    for rank in range(2):
        job.apply(rank, PhaseChanged(Phase.RUNNING))
    journal.refresh()
    reader = StateReader(record.path)
    assert reader.read() is not None
    assert reader.read() is None, "nothing has changed"
    decoded: list[bytes] = []
    decode = state_file.decode
    monkeypatch.setattr(state_file, "decode", lambda line: decoded.append(line) or decode(line))
    job.apply(1, Heartbeat(5))
    journal.refresh()
    found = reader.read()
    assert found is not None
    assert found[1] == [(1, Heartbeat(5))]
    assert decoded == [encode(1, Heartbeat(5))[:-1]]


def test_a_job_that_others_hold_changes_as_a_whole(state: Path, job: Job) -> None:
    journal = Journal(job)
    reader = FollowedState(journal.open())
    reader.read_state()
    ranks = reader.job.ranks
    job.apply(None, AttemptStarted(0))
    job.apply(0, PhaseChanged(Phase.RUNNING))
    journal.refresh()
    reader.read_state()
    assert reader.job.ranks is ranks
    assert (reader.job.status, ranks[0].phase) == (Status.RUNNING, Phase.RUNNING)


def test_a_glance_sees_how_a_long_job_began_and_ended(state: Path, job: Job) -> None:
    journal = Journal(job)
    record = journal.open()
    for step in range(20_000):
        job.apply(0, Metrics({"loss": 1.0, "accuracy": 0.5}, step, at=1.0))
    job.finish(Status.FAILED, error=ValueError("no" * 50_000))
    start, end = StoredState.read(record.path).ends()
    assert (start.id, start.name) == (job.id, "train")
    assert isinstance(end, JobEnded)
    assert (end.status, end.error_type) == ("failed", "ValueError")
