"""A job is the fold of its events: live, from its journal, and from a journal that was made shorter."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from notebook_accel.events import AttemptStarted, Event, Failed, Line, Metrics, Phase, Raised, Shown, Signalled
from notebook_accel.launch.job import progress
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.kept_displays import MAX_BYTES
from notebook_accel.launch.journal import writing
from notebook_accel.launch.journal.lines import decode
from notebook_accel.launch.journal.reading import Tail, empty_job, replay
from notebook_accel.launch.journal.writing import Journal
from tests.launch.journal.cases import SIZE, displayed, fold, told

WRITE, READ = "write", "read"
steps = st.lists(st.one_of(told, told, st.sampled_from([WRITE, READ])), max_size=60)


def numbered(event: Event, numbers: Iterator[int]) -> Event:
    """The event as the driver sends it, which counts the attempts."""
    return replace(event, attempt=next(numbers)) if isinstance(event, AttemptStarted) else event


@given(st.lists(told, max_size=120), st.sampled_from([None, *(each for each in Status if each.ended)]))
@pytest.mark.smoke
def test_a_job_is_the_fold_of_its_own_events(given_events: list[Any], ending: Status | None) -> None:
    job, again = Job("train", 4, SIZE, "2 × GPU", world_size=8, label="${rank}"), empty_job()
    numbers = count(1)
    for rank, event in given_events:
        job.apply(rank, numbered(event, numbers))
    if ending is not None:
        job.finish(ending, error=ValueError("no"))
    for rank, event in (*job.events(), *job.report_log.read()):
        again.apply(rank, event)
    assert fold(again) == fold(job)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_whoever_follows_a_journal_has_the_job(state: Path, monkeypatch: pytest.MonkeyPatch, given_steps: Any) -> None:
    """However often it was written, made shorter and read in between."""
    monkeypatch.setattr(writing, "LONGEST", 300)
    monkeypatch.setattr(writing, "GROWTH", 1)
    job, followed = Job("train", 0, SIZE), empty_job()
    journal = Journal(job)
    record = journal.open()
    tail = Tail(record, decode)
    numbers = count(1)

    def read() -> None:
        for rank, event in tail.read():
            followed.apply(rank, event)

    for step in given_steps:
        if step == WRITE:
            journal.refresh()
        elif step == READ:
            read()
        else:
            rank, event = step
            job.apply(rank, numbered(event, numbers))
    job.finish(Status.DONE)
    read()
    tail.close()
    assert fold(followed) == fold(job)
    assert fold(replay(record)) == fold(job)
    record.remove()


def test_a_long_job_has_a_short_journal(state: Path, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "LONGEST", 50_000)
    journal = Journal(job)
    record = journal.open()
    longest = 0
    for step in range(10_000):
        job.apply(0, Metrics({"loss": 1 / (step + 1)}, step, at=float(step)))
        job.apply(1, Line("stdout", str(step)))
        if step % 10 == 0:
            journal.refresh()
            longest = max(longest, record.journal.stat().st_size)
    job.finish(Status.DONE)
    assert longest < 150_000  # of about 1,300,000 that were written
    assert record.head().generation > 2
    assert fold(replay(record)) == fold(job)


def test_rich_outputs_are_kept_in_their_places_up_to_a_size(state: Path, job: Job) -> None:
    journal = Journal(job)
    record = journal.open()
    for step in range(30):
        job.apply(0, Line("stdout", f"before {step}"))
        job.apply(0, Shown(bundle=displayed(f"{step}" * 100_000)))
    job.finish(Status.DONE)
    for ended in (job, replay(record)):
        kept = [event for event in ended.ranks[0].events() if isinstance(event, (Line, Shown))]
        texts = [json.loads(event.bundle[0])["data"]["text/plain"] for event in kept if isinstance(event, Shown)]
        assert [type(event) for event in kept] == [Line, Shown] * 30
        assert [text[:2] for text in texts] == [f"{step}{step}"[:2] for step in range(30)]
        assert sum(map(len, texts)) < MAX_BYTES + 30_000 < 30 * 200_000
        assert len(texts[-1]) == 200_000
    assert fold(replay(record)) == fold(job)


def test_a_rank_that_obeys_an_interrupt_is_stopped_and_has_not_failed() -> None:
    interrupted = Failed([Raised("KeyboardInterrupt", "KeyboardInterrupt", [])], at=1.0)
    job = Job("train", 0, 4)
    job.apply(0, Signalled(signal.SIGINT))
    job.apply(0, interrupted)
    job.apply(1, interrupted)  # raised by the function itself
    job.apply(2, Signalled(signal.SIGINT))
    job.apply(2, Failed([Raised("OSError", "OSError: no room to save", [])], at=1.0))
    job.apply(3, Signalled(signal.SIGINT))
    job.apply(
        3, Failed([Raised("RuntimeError", "RuntimeError: connection closed by peer", [])], at=1.0, from_peer=True)
    )
    assert [state.phase for state in job.ranks] == [Phase.STOPPED, Phase.FAILED, Phase.FAILED, Phase.STOPPED]
    told = ["", "KeyboardInterrupt", "OSError: no room to save", ""]
    assert [progress.why_failed(state) for state in job.ranks] == told


def test_of_a_syntax_error_the_message_is_told_and_not_its_place() -> None:
    text = '  File "<string>", line 1\n    x = = 1\n        ^\nSyntaxError: invalid syntax'
    job = Job("train", 0, 1)
    job.apply(0, Failed([Raised("SyntaxError", text, [])], at=1.0))
    assert progress.why_failed(job.ranks[0]) == "SyntaxError: invalid syntax"
