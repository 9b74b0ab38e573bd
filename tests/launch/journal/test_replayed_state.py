"""A job is the fold of its events: live, and as whoever follows it reads it from disk."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from notebook_accel.events import AttemptStarted, Event, Failed, Heartbeat, Lines, Metrics, Phase, Raised, Signalled
from notebook_accel.launch.job import progress
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.journal.followed_job import FollowedJob
from notebook_accel.launch.journal.writing import Journal
from tests.launch.journal.cases import SIZE, fold, followed, state_of, told

WRITE, READ = "write", "read"
steps = st.lists(st.one_of(told, told, st.sampled_from([WRITE, READ])), max_size=60)


def numbered(event: Event, numbers: Iterator[int]) -> Event:
    """The event as the driver sends it, which counts the attempts."""
    return replace(event, attempt=next(numbers)) if isinstance(event, AttemptStarted) else event


@given(st.lists(told, max_size=120), st.sampled_from([None, *(each for each in Status if each.ended)]))
@pytest.mark.smoke
def test_a_job_is_the_fold_of_its_own_events(given_events: list[Any], ending: Status | None) -> None:
    """Apart from what its ranks have written, which is in its log."""
    job, again = Job("train", 4, SIZE, "2 × GPU", world_size=8, label="${rank}"), Job("", 0, 0)
    numbers = count(1)
    for rank, event in given_events:
        if not isinstance(event, Lines):
            job.apply(rank, numbered(event, numbers))
    if ending is not None:
        job.finish(ending, error=ValueError("no"))
    again.restore(list(job.events()))
    for rank, reports in job.report_log.read():
        again.apply(rank, reports)
    assert fold(again) == fold(job)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_whoever_follows_a_job_has_it(state: Path, given_steps: Any) -> None:
    """However often it was written, and read in between."""
    job = Job("train", 0, SIZE)
    journal = Journal(job)
    record = journal.open()
    reader = FollowedJob(record, show=lambda: None)
    numbers = count(1)
    for step in given_steps:
        if step == WRITE:
            journal.refresh()
        elif step == READ:
            list(reader.read())
        else:
            rank, event = step
            job.apply(rank, numbered(event, numbers))
    job.finish(Status.DONE)
    list(reader.read())
    assert fold(reader.job) == fold(job)
    assert fold(followed(record)) == fold(job)
    record.remove()


def test_a_long_job_has_a_short_state(state: Path, job: Job) -> None:
    journal = Journal(job)
    record = journal.open()
    longest = 0
    for step in range(10_000):
        job.apply(0, Metrics({"loss": 1 / (step + 1)}, step, at=float(step)))
        job.apply(1, Lines("stdout", [str(step)]))
        if step % 100 == 0:
            job.apply(0, Heartbeat(step, at=float(step)))
            journal.refresh()
            longest = max(longest, len(state_of(record)))
    job.finish(Status.DONE)
    assert longest < 3000
    assert fold(followed(record)) == fold(job)


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
