"""The list of jobs, as jobs go on, end, and are removed, and as others leave what can't be read."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path

import psutil
import pytest

from notebook_accel.errors import ConfigurationError
from notebook_accel.events import CheckpointSaved, Lines, Location, Phase, PhaseChanged, Shown, Stalled
from notebook_accel.jupyter.model import JobRow
from notebook_accel.jupyter.reader import job_list, panels
from notebook_accel.jupyter.reader.comparisons import Comparisons
from notebook_accel.jupyter.reader.job_fold import JobFold
from notebook_accel.jupyter.reader.job_list import JobList, JobRunsError, UnknownJobError
from notebook_accel.jupyter.reader.panels import Panels
from notebook_accel.launch.driver.attach import attach
from notebook_accel.launch.job.describe import describe
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.journal import pages
from notebook_accel.launch.journal.job_summary import summarize
from notebook_accel.panel import html_page
from tests.jupyter.conftest import RecordedJob, end
from tests.launch.journal.cases import put_state


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> JobList:
    """Reads jobs that run at each call."""
    monkeypatch.setattr(job_list, "SHARE", math.inf)
    return JobList()


def row_of(jobs: JobList, job: RecordedJob) -> JobRow:
    [found] = [row for row in jobs.listing()["jobs"] if row["id"] == job.job.id]
    return found


def test_a_running_job_is_followed_until_it_ends(jobs: JobList) -> None:
    job = RecordedJob()
    job.reach(25, 4.0)
    first = row_of(jobs, job)
    assert (first["title"], first["status"], first["live"], first["done"]) == ("train()", "running", True, 250)
    assert first["summary"] == "2 ranks · 25% · 8 s left"
    assert first["code"] == f'from notebook_accel import attach\n\njob = attach("{job.job.id}")'
    job.reach(50, 2.0)
    job.reach(75, 3.0)
    second = row_of(jobs, job)
    assert second["summary"] == "2 ranks · 75% · 2 s left"
    [metric] = second["metrics"]
    assert metric == {"name": "loss", "value": "3", "lines": [[(0, 1000), (500, 0), (1000, 500)]]}
    end(job)
    assert [row_of(jobs, job)[name] for name in ("status", "live", "done")] == ["done", False, 750]  # type: ignore[literal-required]


def test_a_training_can_be_resumed_until_a_later_job_uses_its_checkpoints(jobs: JobList) -> None:
    job, other = RecordedJob(checkpoint_dir="/runs/a"), RecordedJob(checkpoint_dir="/runs/b")
    job.job.apply(None, CheckpointSaved(1))
    job.reach(1, 1.0)
    assert not row_of(jobs, job)["resumable"]
    end(job, Status.INTERRUPTED)
    end(other, Status.FAILED)
    assert row_of(jobs, job)["resumable"]
    assert not row_of(jobs, other)["resumable"], "it has no checkpoint"
    assert "data-commandlinker-args" in html_page.draw(job.job)
    assert f"run %accelerate resume {job.job.id}" in describe(job.job)
    later = RecordedJob(at=0.1, checkpoint_dir="/runs/a")
    later.job.apply(None, CheckpointSaved(1))
    assert not row_of(jobs, job)["resumable"]
    later.fail("no")
    assert [row_of(jobs, each)["resumable"] for each in (job, later)] == [True, True]
    last = RecordedJob(at=0.2, checkpoint_dir="/runs/a")
    end(last)
    assert not any(row_of(jobs, each)["resumable"] for each in (job, later, last))


def test_output_of_ranks_takes_no_memory() -> None:
    job = RecordedJob()
    job.add((0, Lines("stdout", ["line"])), (0, Shown(bundle=[b'{"data": {"text/plain": "picture"}, "metadata": {}}'])))
    assert job.job.ranks[0].lines
    fold = JobFold(job.record)
    assert fold.update(math.inf)
    assert (list(fold.job.ranks[0].lines), fold.job.status) == ([], Status.RUNNING)
    end(job)


def test_a_long_journal_is_read_bit_by_bit_and_meanwhile_its_job_has_a_brief_row(jobs: JobList) -> None:
    job = RecordedJob()
    for step in range(101):
        job.reach(step, 1.0)
    end(job)
    rows = []
    while not rows or rows[-1]["done"] < 0:
        [found] = [row for row in jobs.listing(seconds=0)["jobs"] if row["id"] == job.job.id]
        rows.append(found)
        assert len(rows) < 1000
    assert len(rows) > 2
    assert {(row["title"], row["status"], row["live"]) for row in rows} == {("train()", "done", False)}
    assert (rows[0]["metrics"], rows[-1]["done"]) == ([], 1000)


def test_a_brief_list_has_only_running_jobs_in_full(jobs: JobList) -> None:
    running, ended = RecordedJob(), RecordedJob()
    for job in (running, ended):
        job.reach(50, 1.0)
    end(ended)
    rows = {row["id"]: row for row in jobs.listing(brief=True)["jobs"]}
    assert (rows[running.job.id]["done"], rows[ended.job.id]["done"]) == (500, -1)
    assert rows[ended.job.id]["status"] == "done"
    end(running)


def test_the_newest_job_comes_first(jobs: JobList) -> None:
    made = [RecordedJob("first"), RecordedJob("second", at=1)]
    titles = [row["title"] for row in jobs.listing()["jobs"]]
    assert [title for title in titles if title in ("first()", "second()")] == ["second()", "first()"]
    for job in made:
        end(job)


def test_a_failed_job_says_which_rank_failed_first(jobs: JobList) -> None:
    job = RecordedJob()
    job.fail("ValueError: <b>no</b>")
    assert row_of(jobs, job)["note"] == "rank 1: ValueError: <b>no</b>"


def test_a_stalled_job_says_so(jobs: JobList) -> None:
    job = RecordedJob()
    places = [Location(0, Phase.WAITING, "all_reduce", "In[1] line 2"), Location(1, Phase.RUNNING, "sleep")]
    job.job.apply(None, Stalled(places, since=job.job.started))
    job.add()
    found = row_of(jobs, job)
    assert "stalled" in found["summary"]
    assert "rank 0 waits in all_reduce" in found["note"]
    end(job)


def test_a_paused_job_says_so_and_not_how_long_it_will_take(jobs: JobList) -> None:
    job = RecordedJob()
    job.reach(25, 4.0)
    job.add(*((rank, PhaseChanged(Phase.PAUSED)) for rank in range(2)))
    assert row_of(jobs, job)["summary"].startswith("2 ranks · paused · 25% · ")
    assert "left" not in row_of(jobs, job)["summary"]
    job.add(*((rank, PhaseChanged(Phase.RUNNING)) for rank in range(2)))
    assert row_of(jobs, job)["summary"] == "2 ranks · 25% · 8 s left"
    end(job)


def test_a_metric_that_is_nan_breaks_the_line(jobs: JobList) -> None:
    job = RecordedJob()
    for step, loss in ((0, 1.0), (1, math.nan), (2, 2.0)):
        job.reach(step, loss, name="train/loss")
    [metric] = row_of(jobs, job)["metrics"]
    assert (metric["name"], metric["lines"]) == ("train/loss", [[(0, 0)], [(1000, 1000)]])
    assert json.loads(json.dumps(metric, allow_nan=False))
    end(job)


def test_a_job_whose_process_was_killed_has_ended(jobs: JobList) -> None:
    job = RecordedJob()
    assert row_of(jobs, job)["live"]
    job.record.running.unlink()
    found = row_of(jobs, job)
    assert (found["status"], found["live"]) == (Status.LOST_WITH_PROCESS.value, False)


def test_an_end_that_could_not_be_written_is_known_from_the_name_of_a_file(jobs: JobList) -> None:
    job = RecordedJob()
    job.record.mark_ended(unwritten="failed")
    assert row_of(jobs, job)["status"] == "failed"


def test_a_job_that_was_removed_is_not_listed_and_no_file_of_it_is_open(jobs: JobList) -> None:
    job = RecordedJob()
    jobs.listing()
    assert not any(file.path.startswith(str(job.record.path)) for file in psutil.Process().open_files())
    job.record.remove()
    assert job.job.id not in [row["id"] for row in jobs.listing()["jobs"]]


@pytest.mark.parametrize("head", [b"", b"[]\n", b'{"format": 99, "owner": {}}\n', b"\xff\n"])
def test_a_journal_that_cannot_be_read_has_a_row_that_says_why(jobs: JobList, head: bytes) -> None:
    job = RecordedJob()
    end(job)
    put_state(job.record, head)
    found = row_of(jobs, job)
    assert found["note"].startswith("This job can't be read: its journal")
    assert (found["live"], found["code"]) == (False, "")
    jobs.delete(job.job.id)
    assert not job.record.path.exists()


def test_a_job_is_asked_to_stop(jobs: JobList) -> None:
    job = RecordedJob()
    jobs.stop(job.job.id)
    jobs.stop(job.job.id)
    assert job.record.stop_requests() == 2
    end(job)


def test_a_job_that_takes_long_to_read_is_read_less_often(jobs: JobList, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_list, "SHARE", 1e-9)
    job = RecordedJob()
    job.reach(25, 4.0)
    assert row_of(jobs, job)["done"] == 250
    job.reach(75, 4.0)
    jobs.stop(job.job.id)
    later = row_of(jobs, job)
    assert (later["done"], later["stopping"]) == (250, 1)  # requests and the end are shown at once
    end(job)
    assert [row_of(jobs, job)[name] for name in ("status", "done")] == ["done", 750]  # type: ignore[literal-required]


def test_the_main_metric_is_the_loss_even_if_it_comes_last(jobs: JobList) -> None:
    job = RecordedJob()
    for name in ("accuracy", "train/loss", "loss"):
        for step in (1, 2):
            job.reach(step, float(step), name=name)
        assert [metric["name"] for metric in row_of(jobs, job)["metrics"]] == [name]
    [metric] = row_of(jobs, job)["metrics"]
    assert (metric["value"], metric["lines"]) == ("2", [[(0, 0), (1000, 1000)]])
    end(job)


def test_a_job_has_the_name_the_notes_and_the_pin_that_its_user_gives_it(
    jobs: JobList, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, newer = RecordedJob(), RecordedJob(at=1)
    end(job)
    end(newer)
    before = row_of(jobs, job)
    jobs.mark(job.job.id, {"title": " wide <b>", "notes": "two\nlines"})
    jobs.mark(job.job.id, {"pinned": True})
    after = row_of(jobs, job)
    assert (after["title"], after["notes"], after["pinned"]) == ("wide <b>", "two\nlines", True)
    assert summarize(job.record).title == "wide <b>"
    found = attach(job.job.id)
    assert (found.title, found.notes) == ("wide <b>", "two\nlines")
    [run] = Comparisons().compare([job.job.id], "loss")["runs"]
    assert run["label"] == "wide <b>"
    assert {"name": "Notes", "text": "two\nlines", "order": None} in run["facts"]
    monkeypatch.setattr(panels, "LOOK_EVERY", 0)
    panel, later = Panels(), JobList()  # which read the job only once it has these marks
    head = panel.update(job.job.id, "panel", -1, [])["state"]["head"]
    assert (head["name"], head["choices"].splitlines()[:2]) == ("wide <b>", ["two", "lines"])
    assert row_of(later, job)["title"] == "wide <b>"
    monkeypatch.setattr(job_list, "MOST", 1)
    assert [row["id"] for row in jobs.listing()["jobs"]] == [newer.job.id, job.job.id], "however old it is"
    jobs.mark(job.job.id, {"title": "", "pinned": False})
    monkeypatch.undo()
    for each in (jobs, later):
        assert row_of(each, job) == {**before, "notes": "two\nlines"}
    assert panel.update(job.job.id, "another", -1, [])["state"]["head"]["name"] == "train()"


def test_the_cell_of_a_job_is_known_even_if_its_page_draws_it_after_the_end(jobs: JobList) -> None:
    job = RecordedJob()
    end(job)
    assert row_of(jobs, job)["cell"] == ""
    pages.note_output(job.record, "a b.ipynb", "1c2b")
    assert [row_of(jobs, job)[name] for name in ("notebook", "cell")] == ["a b.ipynb", "1c2b"]  # type: ignore[literal-required]


@pytest.mark.parametrize("given", [{"title": "x" * 121}, {"title": 7}, {"notes": ["x"]}, {"pinned": 2}, {"id": "0"}])
def test_what_is_no_name_no_notes_and_no_pin_is_refused(jobs: JobList, given: dict[str, object]) -> None:
    job = RecordedJob()
    end(job)
    jobs.mark(job.job.id, {"title": "kept"})
    with pytest.raises(ConfigurationError):
        jobs.mark(job.job.id, given)
    assert row_of(jobs, job)["title"] == "kept"


def test_damaged_marks_are_none_and_those_of_jobs_that_are_gone_are_removed(jobs: JobList, state: Path) -> None:
    job, gone = RecordedJob(), RecordedJob()
    for each in (job, gone):
        end(each)
        jobs.mark(each.job.id, {"title": "marked"})
    folder = state.parent / "marks"
    for damage in ("", "[]", '{"title": 7}', '{"later": 1}'):
        (folder / job.job.id).write_text(damage)
        assert row_of(jobs, job)["title"] == "train()"
    jobs.delete(gone.job.id)
    jobs.mark(job.job.id, {"pinned": True})
    assert gone.job.id not in os.listdir(folder)


def test_a_job_that_runs_is_not_deleted(jobs: JobList) -> None:
    job = RecordedJob()
    with pytest.raises(JobRunsError, match="stop it first"):
        jobs.delete(job.job.id)
    assert job.record.path.exists()
    end(job)
    jobs.delete(job.job.id)
    assert not job.record.path.exists()


@pytest.mark.parametrize("job_id", ["", "..", "../jobs", "ffffffffffff", "[0-9a-f]"])
def test_an_id_that_no_job_has_is_refused(jobs: JobList, job_id: str) -> None:
    job = RecordedJob()
    end(job)
    for change in (jobs.stop, jobs.delete):
        with pytest.raises(UnknownJobError, match="there is no job"):
            change(job_id)
    with pytest.raises(UnknownJobError):
        jobs.delete(job.job.id[:-1])
    assert job.record.path.exists()


def test_a_folder_that_others_can_write_to_is_not_read(jobs: JobList, state: Path) -> None:
    job = RecordedJob()
    end(job)
    before = stat.S_IMODE(state.stat().st_mode)
    os.chmod(state, 0o777)
    try:
        listing = jobs.listing()
        assert listing["jobs"] == []
        assert f"Others can write to the folder of jobs, {state}" in listing["problem"]
        with pytest.raises(UnknownJobError):
            jobs.delete(job.job.id)
    finally:
        os.chmod(state, before)
    assert job.record.path.exists()


def test_without_any_job_there_is_no_problem(jobs: JobList, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTEBOOK_ACCEL_STATE", str(tmp_path / "none"))
    assert jobs.listing() == {"jobs": [], "problem": ""}


def test_a_home_that_is_read_only_is_a_problem(jobs: JobList, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTEBOOK_ACCEL_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)  # root may write anywhere
    problem = jobs.listing()["problem"]
    assert f"aren't recorded and don't appear here, because {tmp_path} isn't writable" in problem
