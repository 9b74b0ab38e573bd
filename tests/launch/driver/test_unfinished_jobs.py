"""Which job `%accelerate resume` takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.driver import relaunch
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.journal.writing import Journal
from notebook_accel.launch.show import console
from notebook_accel.launch.show.console import Terminal
from tests.launch.journal.test_saved_launch import SAVED

Begin = Callable[..., str]


class From(Terminal):
    """A notebook."""

    def __init__(self, origin: str) -> None:
        self._origin = origin

    def origin(self) -> str:
        return self._origin


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Launches a job, which ends with a status if one is given; returns its ID."""
    monkeypatch.setenv("NOTEBOOK_ACCEL_STATE", str(tmp_path / "state"))
    clock = iter(range(1, 1000))

    def make(status: Status | None, folder: str = "/a", origin: str = "mine.ipynb") -> str:
        monkeypatch.setattr(console, "current", From(origin))
        job = Job("train", 0, 1)
        job.started = float(next(clock))
        saved = replace(SAVED, checkpoint_dir=folder) if folder else None
        Journal(job, saved=saved).open()
        if status is not None:
            job.finish(status)
        return job.id

    return make


def found(job_id: str | None = None) -> str:
    return relaunch.find(job_id, "mine.ipynb").summary.id


def refused(job_id: str | None = None) -> str:
    with pytest.raises(ConfigurationError) as error:
        found(job_id)
    return str(error.value)


@pytest.mark.parametrize("status", [status for status in Status if status.ended and status is not Status.DONE])
def test_it_is_the_last_one_of_the_notebook_that_did_not_end_well(begin: Begin, status: Status) -> None:
    begin(Status.FAILED)
    expected = begin(status, "/b")
    begin(Status.DONE, "/c")
    begin(Status.FAILED, "")
    begin(Status.FAILED, "/d", "other.ipynb")
    assert found() == expected


def test_it_may_be_named_wherever_it_was_launched(begin: Begin) -> None:
    first = begin(Status.FAILED, "/d", "other.ipynb")
    last = begin(Status.FAILED)
    assert found(first) == first
    assert relaunch.unfinished_ids() == [last, first]


def test_a_training_that_a_later_job_finished_is_finished(begin: Begin) -> None:
    first = begin(Status.FAILED)
    begin(Status.DONE)
    assert "there is nothing to resume" in refused()
    assert "a later job with its folder, /a, did: there is nothing to resume" in refused(first)


def test_nothing_to_resume_names_what_other_notebooks_have(begin: Begin) -> None:
    assert "there is nothing to resume" in refused()
    other = begin(Status.FAILED, "/d", "other.ipynb")
    assert refused().endswith(f": %accelerate resume {other}")


def test_a_job_with_the_same_folder_must_not_run(begin: Begin) -> None:
    begin(Status.FAILED)
    running = begin(None, "/a", "other.ipynb")
    assert f"still runs, and saves to /a: %accelerate attach {running} shows it" in refused()


def test_a_job_that_runs_is_not_resumed(begin: Begin) -> None:
    running = begin(None)
    for named in (None, running):
        assert f"%accelerate attach {running} shows it" in refused(named)


def test_a_named_job_must_have_checkpoints_and_be_unfinished(begin: Begin) -> None:
    done, plain = begin(Status.DONE), begin(Status.FAILED, "")
    assert "succeeded, or a later job with its folder, /a, did" in refused(done)
    assert "saved no checkpoints" in refused(plain)
    assert "no job begins with 'xyz'" in refused("xyz")
