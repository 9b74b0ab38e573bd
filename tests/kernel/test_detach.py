"""`detach=True`: a job that outlives its kernel, and is followed, stopped and asked for its result from any other."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.kernel.conftest import GONE_WITHIN, end
from tests.kernel.test_attach import SETUP
from tests.live_notebook import Notebook, wait_until

pytestmark = pytest.mark.early


@pytest.fixture(scope="module")
def plain() -> Iterator[Notebook]:
    """A notebook whose kernel the tests may end."""
    found = Notebook()
    found.check(SETUP)
    yield found
    wait_until(lambda: not found.launched(), GONE_WITHIN)
    end(found)


@pytest.fixture
def go(plain: Notebook, tmp_path: Path) -> Iterator[Path]:
    """A file that `work` waits for."""
    path = tmp_path / "go"
    plain.check(f"go = {str(path)!r}")
    yield path
    path.touch()


def driver(notebook: Notebook) -> psutil.Process:
    """The process that runs the detached job."""
    (found,) = [each for each in notebook.processes() if "driver.detached_main:main" in " ".join(each.cmdline())]
    return found


def test_a_detached_job_survives_a_restart_of_its_kernel(plain: Notebook, go: Path):
    """Before a kernel ends, it ends its children."""
    started = plain.check("notebook_launcher(work, (go,), num_processes=2, detach=True)")
    plain.read_until(started, "rank 1 is ready", timeout=20)
    plain.read_until(started, "work() on 2 ranks: running", timeout=20)
    plain.restart()
    cell = plain.check(SETUP + "job = attach()")
    for text in ("[0] rank 0 is ready", "[1] rank 1 is ready", "work() on 2 ranks: running"):
        plain.read_until(cell, text)
    assert plain.value("jobs()[0].detached, jobs()[0].status.value") == (True, "running")
    go.touch()
    assert plain.value("job.result(60), job.status.value, await job") == ([0, 10], "done", [0, 10])
    plain.read_until(cell, "[1] rank 1 went on")
    plain.read_until(cell, "work() on 2 ranks: done")
    assert plain.value("[state.metrics for state in job.ranks]") == [{"loss": 0.0}, {"loss": 1.0}]


def test_a_detached_job_survives_the_death_of_its_kernel(go: Path, plain: Notebook):
    started = plain.check("notebook_launcher(work, (go,), num_processes=1, detach=True)")
    plain.read_until(started, "rank 0 is ready", timeout=20)
    os.kill(plain.pid, signal.SIGKILL)
    plain.restart()
    cell = plain.check(SETUP + "job = attach()")
    plain.read_until(cell, "rank 0 is ready")
    assert plain.value("job.cancel(), job.wait(10), job.status.value, job.cancel()") == (True, True, "cancelled", False)
    assert plain.run("job.result()").error == "JobCancelledError"


def test_the_ranks_of_a_detached_job_die_with_its_driver(plain: Notebook, go: Path):
    cell = plain.check("job = notebook_launcher(work, (go,), num_processes=2, detach=True)")
    plain.read_until(cell, "rank 1 is ready", timeout=20)
    driver(plain).kill()
    assert plain.value("job.wait(10), job.status.value") == (True, "ended with its process")
    cell = plain.run("job.result()")
    assert cell.error == "JobLostError"
    assert "ended because the process that ran it was killed" in cell.error_text


def test_an_error_of_a_detached_job_reads_as_any_other(plain: Notebook, go: Path):
    plain.check("""
    class Bad(Exception): pass
    def fail():
        raise Bad("no")
    """)
    attached = plain.run("notebook_launcher(fail, num_processes=2)")
    plain.check("job = notebook_launcher(fail, num_processes=2, detach=True)")
    cell = plain.run("job.result(60)")
    assert cell.error == "RankError"
    assert cell.error_text == attached.error_text
    assert "raise Bad" in cell.error_text
    assert plain.value("""
    try:
        job.result()
    except Exception as error:
        found = isinstance(error.__cause__, Bad), error.rank
    found
    """) == (True, 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("detach=True, block=True", "detach=True contradicts block=True"),
        ("detach=1", "detach must be True or False, not 1"),
        ("detach=True, num_processes=0", "num_processes=0: it must be at least 1"),
    ],
)
def test_wrong_arguments_of_a_detached_job_are_refused_by_the_call(plain: Notebook, arguments: str, said: str):
    cell = plain.run(f"notebook_launcher(work, (go,), {arguments})")
    assert cell.error == "ConfigurationError"
    assert said in cell.error_text


@pytest.mark.usefixtures("go")
def test_a_rank_in_the_kernel_cannot_be_detached(plain: Notebook):
    cell = plain.run("""
    os.environ["NOTEBOOK_ACCEL_ENGINE"] = "inprocess"
    try:
        notebook_launcher(work, (go,), num_processes=1, detach=True)
    finally:
        del os.environ["NOTEBOOK_ACCEL_ENGINE"]
    """)
    assert cell.error == "ConfigurationError"
    assert "does not work with the inprocess engine, whose rank runs in this process" in cell.error_text


def test_a_detached_job_needs_a_journal(plain: Notebook, go: Path, tmp_path: Path):
    (tmp_path / "file").touch()
    cell = plain.run(f"""
    before = os.environ["NOTEBOOK_ACCEL_STATE"]
    os.environ["NOTEBOOK_ACCEL_STATE"] = {str(tmp_path / "file")!r}
    try:
        notebook_launcher(work, (go,), num_processes=1, detach=True)
    finally:
        os.environ["NOTEBOOK_ACCEL_STATE"] = before
    """)
    assert cell.error == "LaunchError"
    assert "a detached job needs a journal, which can't be written" in cell.error_text


def test_notices_of_a_detached_job_are_seen(plain: Notebook, go: Path):
    plain.check("def fail(): raise ValueError('bad')")
    cell = plain.check("job = notebook_launcher(fail, num_processes=1, max_restarts=1, detach=True)")
    plain.read_until(cell, "starting again (attempt 2 of 2)", timeout=20)
    assert plain.value("job.wait(60), job.attempt") == (True, 1)
