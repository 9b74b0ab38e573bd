"""`attach`: a job seen again after a reload, in another notebook, after a restart of the kernel."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.conftest import Shared, end
from tests.live_notebook import Notebook, wait_until

pytestmark = pytest.mark.versions

# Without torch, whose import takes most of the time of a first launch.
SETUP = """
import os, pathlib, time
from notebook_accel import attach, jobs, notebook_launcher, report

def work(name):
    rank = int(os.environ["RANK"])
    print(f"rank {rank} is ready")
    report(loss=rank)
    while not pathlib.Path(name).exists():
        time.sleep(0.005)
    print(f"rank {rank} went on")
    return rank * 10
"""
PATIENCE = 60.0
"""Seconds for what another notebook shows: a journal is written at most so often that it takes 1% of the time."""


@pytest.fixture(scope="module")
def elsewhere(shared: Shared) -> Iterator[Notebook]:
    """Another notebook of the same user."""
    found = Notebook(state=shared.get().state)
    found.check(SETUP)
    yield found
    end(found)


@pytest.fixture
def go(notebook: Notebook, tmp_path: Path) -> Iterator[Path]:
    """A file that `work` waits for; the shared notebook has `work`."""
    notebook.check(SETUP)
    path = tmp_path / "go"
    notebook.check(f"go = {str(path)!r}")
    yield path
    path.touch()


def test_a_running_job_is_shown_again_and_followed(notebook: Notebook, go: Path):
    """As after a page reload: in another cell, from the beginning."""
    first = notebook.check("job = notebook_launcher(work, (go,), num_processes=2, block=False)")
    notebook.read_until(first, "rank 1 is ready", timeout=PATIENCE)
    refused = notebook.run("os.environ['NOTEBOOK_ACCEL_VIEW'] = 'panel'; attach()")
    notebook.check("del os.environ['NOTEBOOK_ACCEL_VIEW']")
    assert "there is no view 'panel'" in refused.traceback
    again = notebook.check("same = attach()")
    assert again.bundles, "it comes after what the cell shows next"
    for text in ("[0] rank 0 is ready", "[1] rank 1 is ready", "work() on 2 ranks: running"):
        notebook.read_until(again, text, timeout=PATIENCE)
    go.touch()
    for text in ("[0] rank 0 went on", "[1] rank 1 went on", "work() on 2 ranks: done"):
        notebook.read_until(again, text, timeout=PATIENCE)
    assert notebook.value("same is job, job.result(60)") == (True, [0, 10])
    assert len(again.lines) == 4


def test_a_job_of_another_kernel_tells_where_its_ranks_are(notebook: Notebook, elsewhere: Notebook, go: Path):
    first = notebook.check("job = notebook_launcher(work, (go,), num_processes=2, block=False)")
    notebook.read_until(first, "rank 1 is ready", timeout=PATIENCE)
    job = notebook.value("job.id")
    wait_until(lambda: elsewhere.value(f"{job!r} in [each.id for each in jobs()]"), PATIENCE)  # it is recorded soon
    elsewhere.check(f"other = attach({job!r})")
    for _ in range(2):  # each question has its own answer
        threads, said = elsewhere.value("sorted((found := other.stacks(20)).threads), repr(found)")
        assert threads == [0, 1]
        assert "in work" in said
        assert "In[" in said, "the cell has no file there"
    go.touch()
    assert elsewhere.value("other.wait(20), repr(other.stacks())") == (
        True,
        "work() has ended (done), so its ranks have no stacks",
    )


def test_a_job_that_is_over_is_shown_with_its_lines_and_metrics(notebook: Notebook, go: Path):
    go.touch()
    notebook.check("notebook_launcher(work, (go,), num_processes=2)")
    cell = notebook.check("job = attach()")
    assert {"[0] rank 0 is ready", "[1] rank 1 is ready"} < set(cell.lines)
    assert cell.displays[0].startswith("work() on 2 ranks: done, ")
    assert "text/html" in cell.bundles[0]
    rows = notebook.value("[(int(row['rank']), row['loss']) for _, row in job.metrics.iterrows()]")
    assert rows == [(0, 0.0), (1, 1.0)]
    assert notebook.value("[state.lines[-1].text for state in job.ranks]") == ["rank 0 went on", "rank 1 went on"]
    assert notebook.value("job.wait(0)")
    assert "its result went only to the call that launched it" in notebook.run("job.result()").error_text
    assert notebook.value("jobs()[0].id == job.id, jobs()[0].status.value") == (True, "done")
    shown = notebook.check("job.show()")
    assert shown.displays[0].startswith("work() on 2 ranks: done, ")


def test_a_failure_is_raised_as_it_read(notebook: Notebook, go: Path):
    notebook.check("def fail(): raise ValueError('bad')")
    failed = notebook.run("notebook_launcher(fail, num_processes=2)")
    again = notebook.run("attach().result()")
    assert again.error == "RankError"
    assert again.error_text == failed.error_text


def test_a_job_that_is_not_there_is_an_error(notebook: Notebook, go: Path):
    cell = notebook.run("attach('nothing')")
    assert cell.error == "ConfigurationError"
    assert "no job begins with 'nothing'" in cell.error_text


def test_a_job_is_followed_and_stopped_from_another_notebook(notebook: Notebook, elsewhere: Notebook, go: Path):
    started = notebook.check("job = notebook_launcher(work, (go,), num_processes=2, block=False)")
    notebook.read_until(started, "rank 1 is ready", timeout=PATIENCE)
    job = notebook.value("job.id")
    wait_until(lambda: elsewhere.value(f"{job!r} in [each.id for each in jobs()]"), PATIENCE)  # it is recorded soon
    cell = elsewhere.check(f"job = attach({job!r})")
    elsewhere.read_until(cell, "rank 1 is ready", timeout=PATIENCE)
    assert elsewhere.value("job.cancel(), job.wait(10), job.status.value") == (True, True, "cancelled")
    assert notebook.value("job.wait(0), job.status.value") == (True, "cancelled")
    assert elsewhere.run("job.result()").error == "JobCancelledError"
    assert elsewhere.value("job.cancel()") is False


def test_after_a_restart_the_last_job_of_this_notebook_is_shown(notebook: Notebook, elsewhere: Notebook, go: Path):
    """Not the last of all."""
    go.touch()
    elsewhere.check(f"notebook_launcher(work, ({str(go)!r},), num_processes=1)")
    notebook.check("notebook_launcher(work, (go,), num_processes=2)")
    elsewhere.restart()
    cell = elsewhere.check(SETUP + "job = attach()")
    assert cell.displays[0].startswith("work() on 1 rank: done, ")


def test_a_killed_kernel_leaves_its_last_job_up_to_its_end(notebook: Notebook, elsewhere: Notebook, go: Path):
    notebook.check("before = {each.id for each in jobs()}")
    started = elsewhere.begin(f"notebook_launcher(work, ({str(go)!r},), num_processes=2)")
    for text in ("rank 0 is ready", "rank 1 is ready", "loss=0", "loss=1"):
        elsewhere.read_until(started, text, timeout=20)
    notebook.check("while not (new := {each.id for each in jobs()} - before): time.sleep(0.01)")  # it is recorded soon
    followed = notebook.check("job = attach(*new)")
    for text in ("work() on 2 ranks: running", "rank 0 is ready", "loss=0", "loss=1"):
        notebook.read_until(followed, text, timeout=PATIENCE)
    os.kill(elsewhere.pid, signal.SIGKILL)
    assert notebook.value("job.wait(10), job.status.value") == (True, "ended with its kernel")
    notebook.read_until(followed, "work() on 2 ranks: ended with its kernel, ", timeout=PATIENCE)
    afterwards = notebook.check("job = attach(job.id)")
    assert afterwards.displays[0].startswith("work() on 2 ranks: ended with its kernel, ")
    assert sorted(afterwards.lines) == ["[0] rank 0 is ready", "[1] rank 1 is ready"]
    assert notebook.value("[state.phase.value for state in job.ranks], job.cancel()") == (["stopped"] * 2, False)
    assert notebook.value("sorted(job.metrics.loss)") == [0.0, 1.0]
    lost = notebook.run("job.result()")
    assert lost.error == "JobLostError"
    assert "ended because its kernel was restarted or died" in lost.error_text
