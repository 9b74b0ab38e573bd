"""Flame graphs of jobs that run, as a notebook asks for them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.insight.test_flamegraph_files import is_speedscope
from tests.live_notebook import Notebook

WORK = """
def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))

def work(path):
    rank = join()
    print("joined")
    over = torch.zeros(1)
    while not over.item():
        if rank == 0:
            spin(0.2)
            over += os.path.exists(path)
        dist.broadcast(over, 0)

def sleep_for(seconds):
    print("sleeping")
    time.sleep(seconds)

def hold_the_gil():
    import ctypes
    print("holding")
    for _ in range(8):
        time.sleep(0.05)
        ctypes.PyDLL(None).usleep(200_000)
"""


@pytest.fixture
def prepared(notebook: Notebook) -> Notebook:
    """A notebook with these functions, in a cell of their own."""
    notebook.check(WORK)
    return notebook


def test_a_flame_graph_shows_where_ranks_spend_their_time(prepared: Notebook, tmp_path: Path) -> None:
    notebook, go, file = prepared, tmp_path / "go", tmp_path / "work.speedscope.json"
    cell = notebook.check(f"job = notebook_launcher(work, ({str(go)!r},), num_processes=2, block=False)")
    notebook.read_until_ranks_wrote(cell, "joined", 2)
    shown = notebook.check("flames = job.flamegraph(0.5); flames")
    assert shown.value is not None
    head, *lines = shown.value.splitlines()
    sampled = re.fullmatch(r"work\(\) on ranks 0-1: (\d+\.\d) s, \d+ samples", head)
    assert sampled is not None, head
    assert float(sampled[1]) >= 0.5, head  # the last sample may come late
    assert any("work, In[" in line and line.endswith("] line 12") for line in lines), lines
    assert any("broadcast, " in line and line.endswith(" (collective operation)") for line in lines), lines

    assert notebook.value(f"str(flames.save({str(file)!r}))") == str(file)
    document = json.loads(file.read_text())
    is_speedscope(document)
    assert [profile["name"] for profile in document["profiles"]] == ["rank 0", "rank 1"]
    in_cells = {(each["name"], each["line"]) for each in document["shared"]["frames"] if each["file"].startswith("In[")}
    assert in_cells >= {("work", 12), ("spin", 4), ("work", 14)}

    one = notebook.check(f"%accelerate flamegraph --seconds 0.2 --rank 1 --save {tmp_path}/one.html")
    assert one.value is not None
    assert one.value.startswith("work() on rank 1: ")
    assert "dist.broadcast(over, 0)" in (tmp_path / "one.html").read_text()

    assert "has no rank 7: its ranks are 0 to 1" in notebook.run("job.flamegraph(rank=7)").error_text
    assert (
        "seconds must be a number of seconds above 0 and at most 600, not 0"
        in notebook.run("job.flamegraph(0)").error_text
    )
    assert "can't be saved as 'x.png'" in notebook.run("flames.save('x.png')").error_text
    go.touch()
    notebook.check("job.result(timeout=20)")
    ended = notebook.run("job.flamegraph()")
    assert ended.error == "JobEndedError"
    assert "work() has ended (done)" in ended.error_text


def test_a_call_that_ends_leaves_what_was_sampled(prepared: Notebook) -> None:
    cell = prepared.check("job = notebook_launcher(sleep_for, (0.5,), num_processes=2, block=False)")
    prepared.read_until_ranks_wrote(cell, "sleeping", 2)
    text = prepared.value("repr(job.flamegraph(60))")
    assert text.startswith("sleep_for() on ranks 0-1: 0.")
    assert "sleep_for, In[" in text


def test_c_code_that_holds_the_gil_counts_for_the_line_that_calls_it(prepared: Notebook) -> None:
    cell = prepared.check("job = notebook_launcher(hold_the_gil, num_processes=1, block=False)")
    prepared.read_until(cell, "holding")
    _, first, *_ = prepared.value("repr(job.flamegraph(1))").splitlines()
    assert "hold_the_gil, In[" in first
    assert first.endswith("line 25")
    prepared.check("job.result(20)")


def test_a_detached_job_is_sampled_by_the_process_that_runs_it(prepared: Notebook, tmp_path: Path) -> None:
    prepared.check(f"job = notebook_launcher(wait_for, ({str(tmp_path / 'go')!r},), num_processes=2, detach=True)")
    prepared.check("while any(state.phase.value != 'running' for state in job.ranks): time.sleep(0.01)")
    text = prepared.value("repr(job.flamegraph(0.3))")
    (tmp_path / "go").touch()
    assert text.startswith("wait_for() on ranks 0-1: ")
    assert "wait_for, In[" in text
    prepared.check("job.result(20)")
