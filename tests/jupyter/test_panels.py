"""The panel of a job in a tab: what a page gets at first and then, and what it asks for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from notebook_accel.events import Lines
from notebook_accel.jupyter.reader import panels
from notebook_accel.jupyter.reader.job_list import UnknownJobError
from notebook_accel.jupyter.reader.panels import INTERVAL, NO_MORE, BadMessageError, Panels, UnreadableJobError
from tests.jupyter.conftest import RecordedJob, end
from tests.launch.journal.cases import put_state, state_of
from tests.panel.test_panel_state import merged

LOG = {"rank": None, "stream": "", "level": 0, "text": "", "before": None, "after": None}


class Page:
    """What a page knows of a job."""

    def __init__(self, shown: Panels, job: RecordedJob, name: str = "page") -> None:
        self.seq = -1
        self.state: dict[str, Any] = {}
        self._shown, self._job, self._name = shown, job, name

    def ask(self, *messages: dict[str, Any], **options: float) -> dict[str, Any]:
        update: Any = self._shown.update(self._job.job.id, self._name, self.seq, messages, **options)
        update = json.loads(json.dumps(update))  # as it comes to the page
        self.seq = update.get("seq", self.seq)
        self.state = update.get("state") or merged(self.state, update.get("patch", {}))
        return update


@pytest.fixture
def shown() -> Iterator[Panels]:
    made = Panels()
    yield made
    made.close()


def test_a_page_gets_the_whole_state_and_then_what_changes(shown: Panels) -> None:
    job = RecordedJob("<img src=x>")
    job.reach(25, 2.0)
    page = Page(shown, job)
    assert "state" in page.ask()
    assert (page.state["head"]["name"], page.state["ranks"]["1"]["done"]) == ("<img src=x>", 250)
    job.reach(50, 1.0)
    update = page.ask()
    assert ("state" in update, update["pause"] >= INTERVAL) == (False, True)
    assert page.state["ranks"]["1"]["done"] == 500
    end(job)
    assert page.ask()["pause"] == NO_MORE
    assert page.state["head"]["status"] == "done"
    assert "patch" not in page.ask()


def test_a_page_that_has_missed_something_gets_the_whole_state(shown: Panels) -> None:
    job = RecordedJob()
    page = Page(shown, job)
    for _ in range(2):
        page.ask()
        job.reach(25, 2.0)
    page.seq -= 1
    before = page.seq
    assert "state" in page.ask()
    shown.close()  # as when nobody has asked for a while
    assert "state" in page.ask()
    assert page.seq > before  # the page ignores what seems older than what it has
    end(job)


def test_two_pages_see_one_job_each_in_its_own_way(shown: Panels) -> None:
    job = RecordedJob()
    for number in range(200):
        job.add((0, Lines("stdout", [f"line {number}"])))
    one, other = Page(shown, job), Page(shown, job, "other")
    one.ask()
    other.ask()
    one.ask({"cmd": "expanded", "ranks": [0]})
    other.ask()
    assert len(one.state["ranks"]["0"]["lines"]) == 200
    assert len(other.state["ranks"]["0"]["lines"]) < 200
    end(job)


def test_charts_and_logs_are_answered(shown: Panels) -> None:
    job = RecordedJob()
    job.job.output_log.add(1, "stdout", 0.0, ["<b>"])
    job.reach(1, 2.0)
    page = Page(shown, job)
    page.ask()
    chart = {"cmd": "chart", "asker": "c", "metrics": ["loss"], "range": None, "points": 9, "ranks": True}
    update = page.ask({**chart, "id": "q", "earlier": "", "export": False})
    [answer], [numbers] = update["replies"], update["buffers"]
    assert (answer["id"], answer["tables"][0]["ranks"]) == ("q", [0, 1])
    assert numbers
    [answer] = page.ask({"cmd": "log", "asker": "l", "id": "r", **LOG})["replies"]
    assert [row[-1] for row in answer["lines"]] == ["<b>"]
    end(job)


def test_a_click_stops_the_job_once_however_often_it_comes(shown: Panels) -> None:
    job = RecordedJob()
    page = Page(shown, job)
    page.ask()
    page.ask({"cmd": "stop", "click": 1}, {"cmd": "stop", "click": 1})
    assert job.record.stop_requests() == 1
    page.ask({"cmd": "stop", "click": 2})
    assert job.record.stop_requests() == 2
    end(job)


def test_a_long_journal_is_read_bit_by_bit(shown: Panels, monkeypatch: pytest.MonkeyPatch) -> None:
    job = RecordedJob()
    for step in range(100):
        job.reach(step, 1.0)
    page = Page(shown, job)
    rounds = 0
    while page.ask(seconds=0.0).get("reading"):
        rounds += 1
        assert (page.seq, rounds < 100) == (-1, True)
    assert rounds > 2
    assert page.state["ranks"]["0"]["phase"] == "running"
    end(job)


def test_what_cannot_be_shown_says_why(shown: Panels) -> None:
    job = RecordedJob()
    page = Page(shown, job)
    page.ask()
    for message in ({}, {"cmd": "stop"}, {"cmd": "chart", "asker": []}, {"cmd": "stop", "click": float("inf")}):
        with pytest.raises(BadMessageError, match="isn't valid"):
            page.ask(message)
    end(job)
    shown.close()
    content = state_of(job.record)
    head, rest = content.split(b"\n", 1)
    put_state(job.record, head.replace(b'"format":', b'"format":9', 1) + b"\n" + rest)
    with pytest.raises(UnreadableJobError, match=r"This job can't be read: .*another version"):
        page.ask()
    put_state(job.record, head + b"\n")
    with pytest.raises(UnreadableJobError, match="no valid first line"):
        page.ask()
    job.record.remove()
    with pytest.raises(UnknownJobError, match="deleted"):
        page.ask()


def test_panels_that_nobody_asks_for_are_closed(shown: Panels, monkeypatch: pytest.MonkeyPatch) -> None:
    job = RecordedJob()
    page = Page(shown, job)
    page.ask()
    monkeypatch.setattr(panels, "FORGOTTEN_AFTER", -1.0)
    assert "state" in page.ask()
    end(job)
