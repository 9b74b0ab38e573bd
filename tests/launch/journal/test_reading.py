"""Journals as crashes, other versions and strangers leave them."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from notebook_accel.errors import JobLostError
from notebook_accel.events import AttemptStarted, JobEnded, Line, Metrics
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.journal import writing
from notebook_accel.launch.journal.lines import decode, encode
from notebook_accel.launch.journal.reading import Tail, first_and_last, replay
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.journal.writing import Journal


@pytest.fixture
def record(state: Path, job: Job) -> Record:
    """Of a job that runs."""
    journal = Journal(job)
    record = journal.open()
    job.apply(None, AttemptStarted(0))
    job.apply(1, Line("stdout", "first"))
    journal.refresh()
    return record


def add(record: Record, data: bytes) -> None:
    with open(record.journal, "ab") as file:
        file.write(data)


def said(job: Job) -> list[str]:
    return [line.text for line in job.ranks[1].lines]


LINE = encode(1, Line("stdout", "second"))


def test_a_last_line_that_a_crash_has_cut_off_is_left_out(record: Record) -> None:
    add(record, LINE[:-5])
    assert said(replay(record)) == ["first"]
    assert first_and_last(record)[1] is None


def test_a_line_that_is_half_there_is_read_once_it_is_whole(record: Record) -> None:
    tail = Tail(record, decode)
    list(tail.read())
    add(record, LINE[:9])
    assert list(tail.read()) == []
    add(record, LINE[9:])
    assert list(tail.read()) == [(1, Line("stdout", "second"))]
    tail.close()


@pytest.mark.parametrize(
    "line",
    [
        b'{"kind":"dance","steps":3}',
        b'{"rank":1,"kind":"line","stream":"stdout","text":"x","color":"red"}',
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
    assert said(replay(record)) == ["first", "second"]


@pytest.mark.parametrize(
    "line",
    [
        {"kind": "end", "status": "bogus", "at": 1.0, "error": "", "error_type": ""},
        {"kind": "end", "status": "done", "at": None, "error": [], "error_type": 5},
        {"rank": 0, "kind": "line", "stream": 5, "text": None},
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
    assert said(replay(record)) == ["first", "second"]


@pytest.mark.parametrize("rank", [2, -1, "0", 0.5, True])
def test_a_line_of_a_rank_that_there_is_not_is_passed_over(record: Record, rank: object) -> None:
    add(record, encode(rank, Line("stdout", "lost")) + LINE)  # type: ignore[arg-type]
    assert said(replay(record)) == ["first", "second"]


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ('{"format":0}', "another version of notebook_accel, in format 0; this version reads format 2"),
        ('{"format":3,"owner":5}', "another version of notebook_accel, in format 3; this version"),
        ('{"format":2,"owner":5}', "has no valid first line"),
        ("[]", "has no valid first line"),
        ("", "has no valid first line"),
    ],
)
def test_a_journal_of_another_format_is_refused(record: Record, head: str, why: str) -> None:
    record.journal.write_text(head + "\n")
    for read in (replay, first_and_last):
        with pytest.raises(JobLostError, match=why):
            read(record)


def test_a_journal_that_is_not_there_is_refused(record: Record) -> None:
    record.remove()
    for read in (replay, first_and_last):
        with pytest.raises(JobLostError, match=r"its journal can't be read: .*No such file"):
            read(record)


@pytest.mark.parametrize("pause", [1, 2, 5])
def test_a_reader_is_told_each_line_once(state: Path, job: Job, monkeypatch: pytest.MonkeyPatch, pause: int) -> None:
    """Also those that were kept while the journal was made shorter."""
    monkeypatch.setattr(writing, "LONGEST", 1000)
    monkeypatch.setattr(writing, "GROWTH", 2)
    journal = Journal(job)
    record = journal.open()
    told: list[str] = []
    with contextlib.closing(Tail(record, decode)) as tail:
        for number in range(100):
            job.apply(1, Line("stdout", str(number)))
            journal.refresh()
            if number % pause == 0:
                told += [event.text for _, event in tail.read() if isinstance(event, Line)]
    assert record.head().generation > 2
    assert told == [str(number) for number in range(len(told))]
    assert len(told) > 100 - pause


def test_what_is_written_while_a_reader_reads_is_not_missed(
    state: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its last look at a file and the file that takes its place."""
    monkeypatch.setattr(writing, "LONGEST", 0)
    monkeypatch.setattr(writing, "GROWTH", 0)
    journal = Journal(job)
    with contextlib.closing(Tail(journal.open(), decode)) as tail:
        reading = tail.read()
        next(reading)
        job.apply(1, Line("stdout", "late"))
        journal.refresh()
        assert list(reading) == [(1, Line("stdout", "late"))]


def test_a_reader_that_was_away_while_the_journal_was_made_shorter_twice_begins_anew(
    state: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "LONGEST", 0)
    monkeypatch.setattr(writing, "GROWTH", 0)
    journal = Journal(job)
    tail = Tail(journal.open(), decode)
    followed = Job("", 0, 0)
    for number in range(5):
        job.apply(1, Line("stdout", str(number)))
        journal.refresh()
    for rank, event in tail.read():
        followed.apply(rank, event)
    tail.close()
    assert said(followed) == [str(number) for number in range(5)]


def test_a_glance_sees_how_a_long_job_began_and_ended(state: Path, job: Job) -> None:
    journal = Journal(job)
    record = journal.open()
    for step in range(20_000):
        job.apply(0, Metrics({"loss": 1.0, "accuracy": 0.5}, step, at=1.0))
    job.finish(Status.FAILED, error=ValueError("no" * 50_000))
    start, end = first_and_last(record)
    assert (start.id, start.name) == (job.id, "train")
    assert isinstance(end, JobEnded)
    assert (end.status, end.error_type) == ("failed", "ValueError")
