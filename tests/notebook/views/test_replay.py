"""A recorded job gives the same picture again, in every version. See record.py for where it comes from."""

from __future__ import annotations

import pytest

from notebook_accel.launch.job.job_state import Status
from notebook_accel.panel import html_page
from tests.notebook.views.record import RECORDED, replay, steps


def kept(name: str) -> str:
    return (RECORDED / name).read_text().removesuffix("\n")


def test_a_recorded_job_is_drawn_as_it_was() -> None:
    drawn = html_page.bundle(replay())
    assert drawn["text/html"] == kept("job.html")
    assert drawn["text/plain"] == kept("job.txt")


def test_a_recorded_job_is_what_it_was() -> None:
    job = replay()
    assert (job.name, len(job.ranks), job.status) == ("train", 4, Status.FAILED)
    assert [state.phase.value for state in job.ranks] == ["done", "failed", "done", "done"]
    assert job.outcome is not None
    assert "rank 1 of 4 raised ValueError: <no> more data" in job.outcome.error
    assert [line.text for line in job.ranks[3].lines] == ["rank 3 trains"]
    assert len(job.charts.drawn("val/loss", (), 200).points) > 30
    assert sum(reports.count for _, reports in job.report_log.read()) == 320


def test_a_job_can_be_drawn_after_each_of_its_events(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = set()
    began = next(steps()).started
    monkeypatch.setattr("time.time", lambda: began)  # no rank is silent
    for job in steps():
        pictures.add(html_page.bundle(job)["text/html"])
    assert kept("job.html") in pictures
    assert len(pictures) > 50


def test_what_is_recorded_here_names_no_machine() -> None:
    assert '"host":"host"' in kept("events.jsonl")
    assert '"filename":"tests/notebook/views/record.py"' in kept("events.jsonl")
