"""`block=False`: the notebook stays free, and a job tells how it goes."""

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live_notebook import Notebook, lines_by_rank, wait_until

SETUP = """
import asyncio, pathlib

def work(name="go"):
    rank = join()
    print(f"rank {rank} is ready")
    wait_for(folder / name)
    print("went on")
    return rank * 10
"""


@pytest.fixture
def free(notebook: Notebook, tmp_path: Path) -> Iterator[Notebook]:
    """A notebook with `work`, which goes on once its file is there."""
    notebook.check(SETUP)
    notebook.check(f"folder = pathlib.Path({str(tmp_path)!r})")
    yield notebook
    for name in ("go", "first", "second"):
        (tmp_path / name).touch()


def test_a_job_leaves_the_notebook_free(free: Notebook, tmp_path: Path):
    free.check("job = notebook_launcher(work, num_processes=2, block=False)")
    assert free.value("sum(range(10)), job.wait(0), job.ended is None") == (45, False, True)
    (tmp_path / "go").touch()
    assert free.value("job.wait(), job.status.value, job.result()") == (True, "done", [0, 10])
    assert free.value("job.wait(), job.result(0)") == (True, [0, 10])


@pytest.mark.clock
def test_a_job_leaves_the_notebook_free_at_once(free: Notebook):
    cell = free.check("job = notebook_launcher(work, num_processes=2, block=False)")
    assert cell.seconds < 1
    free.check("job.cancel(); job.wait()")


def test_a_job_for_which_the_system_grants_no_thread_is_refused_and_not_kept(free: Notebook):
    free.check("""
    from notebook_accel import jobs
    before, start = len(jobs(100)), threading.Thread.start

    def refuse(thread):
        if thread.name.startswith("launch "):
            raise RuntimeError("can't start new thread")
        start(thread)

    threading.Thread.start = refuse
    """)
    cell = free.run("notebook_launcher(int, num_processes=2, block=False)")
    free.check("threading.Thread.start = start")
    assert cell.error == "LaunchError"
    assert cell.error_text.startswith("what runs in the background needs a thread: can't start new thread: ")
    assert free.value("len(jobs(100)) - before, notebook_launcher(int, num_processes=2)") == (0, [0, 0])


def test_the_output_of_a_job_lands_in_the_cell_that_started_it(free: Notebook, tmp_path: Path):
    started = free.check("job = notebook_launcher(work, num_processes=2, block=False)")
    free.read_until(started, "rank 1 is ready")
    (tmp_path / "go").touch()
    other = free.check("print('another cell'); job.wait()")
    free.read_until_ranks_wrote(started, "went on", 2)
    assert other.stdout == "another cell\n"
    assert lines_by_rank("\n".join(started.lines)) == {rank: [f"rank {rank} is ready", "went on"] for rank in range(2)}


def test_a_result_that_is_not_there_in_time_is_a_timeout_and_the_job_goes_on(free: Notebook, tmp_path: Path):
    free.check("job = notebook_launcher(work, num_processes=2, block=False)")
    cell = free.run("job.result(0.05)")
    assert cell.error == "TimeoutError"
    assert "the job keeps running" in cell.error_text
    (tmp_path / "go").touch()
    assert free.value("job.result()") == [0, 10]


def test_a_launch_names_the_jobs_that_run_on_its_devices(free: Notebook, tmp_path: Path):
    free.check("from notebook_accel.launch.driver import attach as known")
    first = free.check("job = notebook_launcher(work, num_processes=1, block=False)")
    free.read_until(first, "rank 0 is ready")
    assert "still runs" not in first.text
    wait_until(lambda: free.value("any(each.id == job.id for each in known.jobs())"))
    again = free.check("first, job = job, notebook_launcher(work, num_processes=1, block=False)")
    free.read_until(again, "rank 0 is ready")
    former = free.value("first.id")
    shown = html.unescape(again.bundles[0]["text/html"])
    assert shown.count("work() of an earlier launch still runs here on 1 rank, for ") == 1
    assert f"attach('{former}').cancel() stops it" in shown
    (tmp_path / "go").touch()
    free.check("first.wait(), job.wait()")
    last = free.check("notebook_launcher(work, num_processes=1)")
    assert "still runs" not in last.bundles[0]["text/html"]


def test_a_job_can_be_cancelled(free: Notebook):
    cell = free.check("job = notebook_launcher(work, num_processes=2, block=False)")
    free.read_until(cell, "rank 1 is ready")
    assert free.value("job.cancel(), job.wait(30), job.status.value, job.cancel()") == (True, True, "cancelled", False)
    cell = free.run("job.result()")
    assert cell.error == "JobCancelledError"
    assert re.fullmatch(r"work\(\) was cancelled after \d+\.\d s", cell.error_text)


def test_a_job_can_be_cancelled_at_once(free: Notebook):
    assert free.value("""
    jobs = [notebook_launcher(work, num_processes=2, block=False) for _ in range(3)]
    [job.cancel() for job in jobs], [job.wait(30) for job in jobs], [job.status.value for job in jobs]
    """) == ([True] * 3, [True] * 3, ["cancelled"] * 3)


@pytest.mark.clock
def test_a_cancel_is_never_lost_however_early_it_comes(free: Notebook):
    """A rank that has been started, but not yet been called, is told too."""
    free.check("""
    seconds = []
    for delay in range(20):
        job = notebook_launcher(work, num_processes=2, block=False)
        time.sleep(delay / 1000)
        began = time.monotonic()
        job.cancel()
        job.wait()
        seconds.append(time.monotonic() - began)
    """)
    assert free.value("max(seconds) < 2"), free.value("seconds")


def test_a_rank_in_the_rendezvous_is_cancelled_with_those_it_waits_for(free: Notebook):
    """It waits in C++, where no interrupt reaches it."""
    free.check("""
    def late():
        if os.environ["RANK"] == "1":
            wait_for("never")
        join()

    job = notebook_launcher(late, num_processes=2, block=False)
    while job.ranks[0].phase.value != "waiting":
        time.sleep(0.01)
    """)
    assert free.value("job.cancel(), job.wait(30), job.status.value") == (True, True, "cancelled")


def test_a_second_cancel_kills(free: Notebook):
    free.check("""
    def stubborn():
        rank = os.environ["RANK"]
        signal.signal(signal.SIGINT, lambda *_: print(rank, "not now"))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print(rank, "ready")
        wait_for("never")
    """)
    cell = free.check("job = notebook_launcher(stubborn, num_processes=2, block=False)")
    for rank in range(2):
        free.read_until(cell, f"[{rank}] {rank} ready")
    free.check("job.cancel()")
    for rank in range(2):
        free.read_until(cell, f"[{rank}] {rank} not now")
    assert free.value("job.cancel(), job.wait(30), job.status.value") == (True, True, "cancelled")


def test_a_failure_is_raised_by_the_result(free: Notebook):
    free.check("def fail(): raise ValueError('bad')\njob = notebook_launcher(fail, num_processes=2, block=False)")
    for _ in range(2):
        cell = free.run("job.result()")
        assert cell.error == "RankError"
        assert cell.traceback.startswith("RankError: both ranks raised ValueError: bad")
        assert re.search(r"In\[\d+\], line 1, in fail", cell.traceback)
    assert free.value("job.status.value, [state.phase.value for state in job.ranks]") == ("failed", ["failed"] * 2)


def test_a_job_tells_of_its_ranks(free: Notebook, tmp_path: Path):
    cell = free.check("""
    def tell():
        print(f"pid of {os.environ['RANK']}: {os.getpid()}")
        wait_for(folder / "go")

    job = notebook_launcher(tell, num_processes=2, block=False)
    """)
    free.read_until(cell, "pid of 1")
    free.read_until(cell, "pid of 0")
    pids = [int(re.search(rf"pid of {rank}: (\d+)", cell.stdout)[1]) for rank in (0, 1)]
    assert free.value("job.status.value, [state.phase.value for state in job.ranks]") == ("running", ["running"] * 2)
    assert free.value("[state.pid for state in job.ranks]") == pids
    assert free.value("[state.lines[-1].text for state in job.ranks]") == [
        f"pid of {rank}: {pid}" for rank, pid in enumerate(pids)
    ]
    shown = free.check("job").value
    assert re.fullmatch(r"<Job [0-9a-f]{12}: tell\(\) running, \d+\.\d s, ranks \{0: running, 1: running\}>", shown), (
        shown
    )
    (tmp_path / "go").touch()
    assert free.value("job.wait(10)")
    assert re.fullmatch(
        r"<Job [0-9a-f]{12}: tell\(\) done, \d+\.\d s, ranks \{0: done, 1: done\}>", free.check("job").value
    )


def test_a_job_can_be_awaited(free: Notebook, tmp_path: Path):
    free.check("job = notebook_launcher(work, num_processes=2, block=False)")
    waiting = free.begin("""
    async def release():
        await asyncio.sleep(0)
        (folder / "go").touch()
        return "released"

    await asyncio.gather(job, release())
    """)
    assert free.finish(waiting).value == "[[0, 10], 'released']"
    assert free.value("await job") == [0, 10]


def test_awaiting_a_job_that_fails_raises(free: Notebook):
    free.check("def fail(): raise ValueError('bad')")
    cell = free.run("await notebook_launcher(fail, num_processes=2, block=False)")
    assert cell.error == "RankError"
    assert cell.traceback.startswith("RankError: both ranks raised ValueError: bad")


def test_interrupting_what_awaits_a_job_takes_effect_while_it_runs(free: Notebook, tmp_path: Path):
    free.check("job = notebook_launcher(work, num_processes=2, block=False)")
    cell = free.begin("print('waiting', flush=True)\nawait job")
    free.read_until(cell, "waiting")
    free.interrupt()
    free.finish(cell, timeout=20)
    assert free.value("job.status.value") == "running"
    if cell.error == "CancelledError":  # as in ipykernel 7; before, a KeyboardInterrupt ended its event loop
        assert cell.traceback.startswith("CancelledError: the wait for work() was cancelled; the job keeps running")
    (tmp_path / "go").touch()
    assert free.value("job.result(10)") == [0, 10]


def test_interrupting_a_wait_leaves_the_job_alone(free: Notebook, tmp_path: Path):
    free.check("job = notebook_launcher(work, num_processes=2, block=False)")
    cell = free.begin("print('waiting', flush=True)\njob.result()")
    free.read_until(cell, "waiting")
    free.interrupt()
    assert free.finish(cell).error == "KeyboardInterrupt"
    (tmp_path / "go").touch()
    assert free.value("job.result()") == [0, 10]


def test_two_jobs_run_at_once(free: Notebook, tmp_path: Path):
    cells = [
        free.check(f"{name} = notebook_launcher(work, ('{name}',), num_processes=2, block=False)")
        for name in ("first", "second")
    ]
    for cell in cells:
        free.read_until(cell, "rank 1 is ready")
    (tmp_path / "second").touch()
    assert free.value("second.result(), first.status.value") == ([0, 10], "running")
    (tmp_path / "first").touch()
    assert free.value("first.result()") == [0, 10]
    for cell in cells:
        free.read_until_ranks_wrote(cell, "went on", 2)
        assert lines_by_rank("\n".join(cell.lines)) == {rank: [f"rank {rank} is ready", "went on"] for rank in range(2)}


def test_a_job_and_a_launch_run_at_once(free: Notebook, tmp_path: Path):
    free.check("job = notebook_launcher(work, num_processes=2, block=False)")
    assert free.value("notebook_launcher(join, num_processes=2)") == [0, 1]
    (tmp_path / "go").touch()
    assert free.value("job.result()") == [0, 10]


def test_wrong_arguments_of_a_job_are_refused_by_the_call(free: Notebook):
    cell = free.run("notebook_launcher(work, num_processes=0, block=False)")
    assert cell.error == "ConfigurationError"


def test_a_lost_result_is_an_error_of_the_job(free: Notebook):
    """A value that cannot be unpickled in the notebook."""
    free.check("""
    class Sour:
        def __reduce__(self):
            return int, ("not a number",)

    job = notebook_launcher(lambda: Sour(), num_processes=2, block=False)
    """)
    cell = free.run("job.result()")
    assert cell.error == "RankError"
    assert "rank 0" in cell.traceback
    assert "can't be unpickled in the notebook" in cell.traceback
