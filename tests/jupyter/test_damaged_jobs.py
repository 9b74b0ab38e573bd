"""Jobs whose journals hold what no version of this package writes: each says so, and the others are shown as ever."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from notebook_accel.errors import JobLostError
from notebook_accel.events import AttemptStarted, JobEnded, JobStarted, Lines
from notebook_accel.jupyter.model import JobRow
from notebook_accel.jupyter.reader import job_list
from notebook_accel.jupyter.reader.job_list import JobList
from notebook_accel.jupyter.reader.job_texts import JobTexts
from notebook_accel.jupyter.reader.panels import Panels, UnreadableJobError
from notebook_accel.launch.journal import records
from notebook_accel.launch.journal.state_file import decode, encode
from notebook_accel.panel.panel_state import StateMaker
from tests.jupyter.conftest import RecordedJob, end
from tests.launch.journal.cases import put_state, state_of

WRONG: list[Any] = [None, -1, 2**70, float("nan"), "<b>", [{}]]


@pytest.fixture
def jobs() -> JobList:
    return JobList()


@pytest.fixture
def damaged() -> Iterator[RecordedJob]:
    """Stands beside a sound one."""
    sound, damaged = RecordedJob("sound"), RecordedJob("damaged", at=1)
    damaged.reach(1, 2.0)
    damaged.add((0, Lines("stdout", ["hello"])))
    for job in (sound, damaged):
        end(job)
    yield damaged
    for record in records.all_records():
        record.remove()


def rows(jobs: JobList, **options: bool) -> dict[str, JobRow]:
    """The rows of `jobs`, as a browser gets them, by title."""
    listing = json.loads(json.dumps(jobs.listing(**options), allow_nan=False))
    return {row["title"]: row for row in listing["jobs"]}


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there is a value in JSON."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from paths_in(inner, (*path, key))


def with_wrong(value: Any, path: tuple[Any, ...], wrong: Any) -> Any:
    if not path:
        return wrong
    made = copy.deepcopy(value)
    holder = made
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = wrong
    return made


def test_a_value_of_a_wrong_type_or_size_hides_no_other_job(damaged: RecordedJob) -> None:
    """Each value in the journal, in turn; the first line of each kind stands for all of them."""
    lines = [json.loads(line) for line in state_of(damaged.record).splitlines()]
    tried = 0
    for index in {line.get("kind"): index for index, line in enumerate(lines)}.values():
        for path in paths_in(lines[index]):
            for wrong in WRONG:
                changed = [*lines[:index], with_wrong(lines[index], path, wrong), *lines[index + 1 :]]
                text = "".join(f"{json.dumps(line)}\n" for line in changed)
                put_state(damaged.record, text.encode())
                check_both(damaged)
                tried += 1
    assert tried > 200


def test_a_journal_that_was_cut_off_hides_no_other_job(damaged: RecordedJob) -> None:
    whole = state_of(damaged.record)
    for length in range(0, len(whole), 29):
        put_state(damaged.record, whole[:length])
        check_both(damaged)


def check_both(damaged: RecordedJob) -> None:
    jobs, panels = JobList(), Panels()
    for options in ({}, {"brief": True}):
        found = rows(jobs, **options)
        assert (len(found), found["sound()"]["note"]) == (2, "")
    with contextlib.suppress(UnreadableJobError):
        assert json.dumps(panels.update(damaged.job.id, "page", -1, []), allow_nan=False)
    panels.close()
    texts, name = JobTexts(), damaged.job.id
    for read in (
        lambda: texts.describe(name),
        lambda: texts.explain(name),
        lambda: texts.log(name, None, 10, ""),
        lambda: texts.metric(name, "loss", 5),
        lambda: texts.look(name, "loss<0.1"),
        lambda: texts.list(10),
    ):
        with contextlib.suppress(JobLostError):
            assert read()
    texts.close()


def test_an_error_that_no_reader_expects_is_told_in_the_row_of_its_job(
    jobs: JobList, damaged: RecordedJob, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = job_list.row
    with monkeypatch.context() as patch:
        patch.setattr(job_list, "row", lambda job, *rest: 1 / 0 if job.name == "damaged" else whole(job, *rest))
        for _ in range(2):
            found = rows(jobs)
            assert found["sound()"]["note"] == ""
            row = found[damaged.job.id]
            assert "can't be read: its journal is damaged" in row["note"]
            assert "ZeroDivisionError" in row["note"]
            put_state(damaged.record, state_of(damaged.record))  # so that it is read again
    assert capfd.readouterr().err.count("ZeroDivisionError") == 1, "the server's log has it once"
    assert rows(jobs)["damaged()"]["status"] == "done"


def test_a_panel_of_a_job_that_leads_to_such_an_error_says_so(
    damaged: RecordedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    panels = Panels()
    with monkeypatch.context() as patch:
        patch.setattr(StateMaker, "whole", lambda _: 1 / 0)
        with pytest.raises(UnreadableJobError, match=r"This job can't be read: its journal is damaged.*ZeroDivision"):
            panels.update(damaged.job.id, "page", -1, [])
    assert panels.update(damaged.job.id, "page", -1, [])["state"]["head"]["name"] == "damaged()"
    panels.close()


@pytest.mark.parametrize(
    "event",
    [
        AttemptStarted(0, size=-1),
        AttemptStarted(0, size=2**40),
        JobEnded("done", at=float("nan")),
        JobStarted("0a0b0c", "train", 0, 2, 2, "2 × CPU", None, at=1e300),
    ],
)
def test_a_line_whose_values_cannot_be_is_left_out(event: Any) -> None:
    assert decode(encode(None, event)) is None
