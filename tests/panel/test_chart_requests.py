"""What an enlarged chart gets to know."""

from __future__ import annotations

import json
import math
from array import array
from pathlib import Path
from typing import Any

import pytest

from notebook_accel.events import AttemptStarted, Exited, Metrics, Phase, PhaseChanged
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.journal import writing
from notebook_accel.launch.journal.writing import Journal
from notebook_accel.panel.chart_requests import ChartDetails
from notebook_accel.panel.questions import Questions, Reply


def a_job(ranks: int, steps: int, name: str = "train") -> Job:
    """One whose ranks report their number plus the step."""
    job = Job(name, 4, ranks)
    job.apply(None, AttemptStarted(0))
    for rank in range(ranks):
        job.apply(rank, PhaseChanged(Phase.RUNNING))
        for step in range(steps):
            job.apply(rank, Metrics({"loss": float(step + rank), "lr": 0.1}, step, at=job.started))
    return job


def content(reply: Reply) -> Any:
    """As it comes to the page."""
    return json.loads(json.dumps(reply.content))


def ask(details: Questions, **fields: Any) -> Reply:
    message = {"metrics": ["loss"], "range": None, "points": 1000, "ranks": False, "earlier": "", "export": False}
    details.take({"cmd": "chart", "asker": "a", "id": "7", **message, **fields})
    reply = details.reply(at_once=True)
    assert reply is not None
    assert reply.content["id"] == "7"
    return reply


def tables(reply: Reply) -> list[tuple[dict[str, Any], list[list[float]]]]:
    """The description and the columns of each table."""
    numbers = array("d")
    numbers.frombytes(reply.numbers)
    found, left = [], numbers.tolist()
    for table in content(reply)["tables"]:
        columns = [[left.pop(0) for _ in range(table["size"])] for _ in range(5 + len(table["ranks"]))]
        found.append((table, columns))
    assert not left
    return found


def test_a_short_run_is_sent_in_full() -> None:
    ((table, columns),) = tables(ask(Questions(ChartDetails(a_job(2, 3)))))
    assert (table["metric"], table["job"], table["by_step"], table["extent"]) == ("loss", "", True, [0, 2])
    assert columns == [[0, 1, 2], [0, 1, 2], [0.5, 1.5, 2.5], [0, 1, 2], [1, 2, 3]]


def test_each_rank_has_a_column_with_its_own_number() -> None:
    ((table, columns),) = tables(ask(Questions(ChartDetails(a_job(2, 2))), ranks=True))
    assert table["ranks"] == [4, 5]
    assert columns[5:] == [[0, 1], [1, 2]]


def test_a_range_has_every_step_although_the_whole_is_thinned() -> None:
    details = Questions(ChartDetails(a_job(1, 5000)))
    ((_, whole),) = tables(ask(details, points=100))
    assert len(whole[0]) < 110
    ((table, columns),) = tables(ask(details, points=100, range=[1000, 1050]))
    assert columns[0] == columns[1] == list(range(999, 1052))  # one beyond each edge
    assert table["extent"] == [0, 4999]


@pytest.mark.parametrize("ranks", [1, 8, 64, 256])
@pytest.mark.parametrize("by_rank", [False, True])
def test_an_answer_is_small_however_many_ranks_there_are(ranks: int, by_rank: bool) -> None:
    reply = ask(Questions(ChartDetails(a_job(ranks, 50))), ranks=by_rank, range=[0, 30])
    assert len(json.dumps(reply.content)) + len(reply.numbers) < 200_000
    assert content(reply)["pause"] >= 1000 * max(1.0, len(reply.numbers) / 25_000)


def test_the_end_of_a_line_waits_for_every_rank() -> None:
    job = a_job(2, 3)
    job.apply(0, Metrics({"loss": 99.0}, 3, at=job.started + 1e9))
    job.apply(1, Metrics({"other": 99.0}, 3, at=job.started + 1e9))
    ((_, columns),) = tables(ask(Questions(ChartDetails(job))))
    assert columns[0] == [0, 1, 2]


def test_new_reports_are_added_to_those_that_were_read() -> None:
    job = a_job(1, 3)
    details = Questions(ChartDetails(job))
    ask(details)
    job.apply(0, Metrics({"loss": math.nan}, 3, at=job.started))
    ((table, columns),) = tables(ask(details))
    assert table["marks"] == [[3, 0]]
    assert columns[0] == [0, 1, 2, 3]


def test_a_metric_that_is_unknown_has_no_table() -> None:
    assert tables(ask(Questions(ChartDetails(a_job(1, 2))), metrics=["no such metric"])) == []


def test_the_last_request_of_a_chart_replaces_those_before() -> None:
    details = Questions(ChartDetails(a_job(1, 2)))
    message = {"cmd": "chart", "asker": "a", "range": None, "points": 9, "ranks": False, "earlier": "", "export": False}
    for number, name in enumerate(("loss", "lr")):
        details.take({**message, "id": str(number), "metrics": [name]})
    reply = details.reply(at_once=True)
    assert reply is not None
    assert (reply.content["id"], tables(reply)[0][0]["metric"]) == ("1", "lr")
    assert details.reply(at_once=True) is None


@pytest.fixture
def earlier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job of the journal, which has ended."""
    monkeypatch.setenv("NOTEBOOK_ACCEL_STATE", str(tmp_path))
    for name, value in {"FIRST_WRITE": 0.0, "WRITE_INTERVAL": 0.0, "WRITE_SHARE": 1e9}.items():
        monkeypatch.setattr(writing, name, value)
    job = a_job(2, 4, "before")
    journal = Journal(job)
    for rank in range(2):
        job.apply(rank, Exited(0))
    job.finish(Status.DONE)
    journal.refresh()
    journal.finish()
    return job


def test_an_earlier_job_is_drawn_behind(earlier: Job) -> None:
    details = Questions(ChartDetails(a_job(2, 2)))
    details.take({"cmd": "earlier", "asker": "a-jobs", "id": "8"})
    reply = details.reply(at_once=True)
    assert reply is not None
    (found,) = content(reply)["jobs"]
    assert found["id"] == earlier.id
    assert found["label"].startswith("before(), 20")
    assert found["label"].endswith("2 ranks, done")
    own, other = tables(ask(details, earlier=earlier.id, ranks=True))
    assert (own[0]["job"], own[0]["ranks"], other[0]["job"], other[0]["ranks"]) == ("", [4, 5], earlier.id, [])
    assert other[1][2] == [0.5, 1.5, 2.5, 3.5]


def test_what_an_earlier_job_lacks_is_said(earlier: Job, tmp_path: Path) -> None:
    job = a_job(1, 2)
    job.apply(0, Metrics({"new": 1.0}, 0, at=job.started))
    details = Questions(ChartDetails(job))
    problem = content(ask(details, metrics=["loss", "new"], earlier=earlier.id))["problem"]
    assert problem == "the earlier job has not reported new"
    problem = content(ask(details, earlier="000000"))["problem"]
    assert problem.startswith("the earlier job has been removed")
