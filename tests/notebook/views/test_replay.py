"""A recorded job gives the same picture again, in every version. See record.py for where it comes from."""

from __future__ import annotations

import contextlib

import pytest

from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.journal.lines import decode
from notebook_accel.launch.journal.reading import Tail, empty_job, replay
from notebook_accel.launch.journal.records import Record
from notebook_accel.notebook.views import static_views
from tests.notebook.views.record import RECORDED


def kept(name: str) -> str:
    return (RECORDED / name).read_text().removesuffix("\n")


def test_a_recorded_job_is_drawn_as_it_was() -> None:
    drawn = static_views.draw_html(replay(Record(RECORDED)))
    assert drawn["text/html"] == kept("job.html")
    assert drawn["text/plain"] == kept("job.txt")


def test_a_recorded_job_is_what_it_was() -> None:
    job = replay(Record(RECORDED))
    assert (job.name, len(job.ranks), job.status) == ("train", 4, Status.FAILED)
    assert [state.phase.value for state in job.ranks] == ["done", "failed", "done", "done"]
    assert job.outcome is not None
    assert "rank 1 of 4 raised ValueError: <no> more data" in job.outcome.error
    assert [line.text for line in job.ranks[3].lines] == ["rank 3 trains"]
    assert len(job.charts.drawn("val/loss", (), 200).points) > 30
    assert sum(reports.count for _, reports in job.report_log.read()) == 320


def test_a_journal_can_be_drawn_at_each_of_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """As whoever follows it sees it."""
    job, pictures = empty_job(), set()
    monkeypatch.setattr("time.time", lambda: job.started)  # no rank is silent
    with contextlib.closing(Tail(Record(RECORDED), decode)) as tail:
        for rank, event in tail.read():
            job.apply(rank, event)
            pictures.add(static_views.draw_html(job)["text/html"])
    assert kept("job.html") in pictures
    assert len(pictures) > 50


def test_what_is_recorded_here_names_no_machine() -> None:
    assert '"host":"host"' in kept("journal.jsonl")
    assert '"filename":"tests/notebook/views/record.py"' in kept("journal.jsonl")
