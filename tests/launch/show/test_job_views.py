"""What shows a job may fail; the job does not."""

from __future__ import annotations

import io
import sys

import pytest

from notebook_accel.launch.job.job import Job
from notebook_accel.launch.show import console
from notebook_accel.launch.show.console import NoView
from notebook_accel.launch.show.job_views import Views
from tests.launch.journal.cases import Notices


class Counted(NoView):
    drawn = 0

    def refresh(self) -> None:
        self.drawn += 1


class Broken(NoView):
    def refresh(self) -> None:
        raise KeyError("loss")


class BrokenAtTheEnd(NoView):
    def finish(self) -> None:
        raise OSError("no more room")


def broken_at_once(job: Job) -> NoView:
    raise RuntimeError("no browser")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    shown = Notices()
    monkeypatch.setattr(console, "current", shown)
    return shown.told


def test_a_view_that_fails_is_left_out_and_the_others_go_on(told: list[str]) -> None:
    job = Job("train", 0, 2)
    other = Counted(job)
    views = Views(job, Broken, other)
    views.refresh()
    views.refresh()
    views.finish()
    assert other.drawn == 2
    (said,) = told
    assert said.startswith("train() can no longer be shown here: KeyError: 'loss' (")
    assert f"{__file__}, line " in said
    assert said.endswith("The job is not affected: job.show() or attach() tries again")


def test_a_view_may_fail_from_the_beginning(told: list[str]) -> None:
    job = Job("train", 0, 2)
    other = Counted(job)
    views = Views(job, broken_at_once, other)
    views.refresh()
    assert other.drawn == 1
    assert "RuntimeError: no browser" in told[0]


def test_a_view_may_fail_at_the_end(told: list[str]) -> None:
    job = Job("train", 0, 2)
    views = Views(job, BrokenAtTheEnd)
    views.refresh()
    assert not told
    views.finish()
    assert "OSError: no more room" in told[0]


def test_an_interrupt_is_not_taken_for_a_failure(told: list[str]) -> None:
    class Interrupted(NoView):
        def refresh(self) -> None:
            raise KeyboardInterrupt

    views = Views(Job("train", 0, 2), Interrupted)
    with pytest.raises(KeyboardInterrupt):
        views.refresh()
    assert not told


def test_a_notice_is_lost_without_an_error_where_the_stream_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    console.Terminal().notice("waiting for ranks")
