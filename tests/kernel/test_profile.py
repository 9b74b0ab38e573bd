"""Profiles of jobs that run, as a notebook asks for them."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.live_notebook import Notebook

WORK = """
import itertools
from torch import nn
from notebook_accel import Accelerator

def train(path, slow=0.0):
    rank = join()
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)))
    optimizer = Accelerator().prepare(torch.optim.SGD(model.parameters(), 0.01))
    inputs, over, first = torch.randn(64, 256), torch.zeros(1), True
    while not over.item():
        model(inputs).square().mean().backward()
        if rank == 1:
            time.sleep(slow)
        optimizer.step()
        over.fill_(rank == 0 and os.path.exists(path))
        dist.broadcast(over, 0)
        if first:
            print("training")
        first = False

def wait(path):
    print("waiting")
    wait_for(path)

def steps(count, path=""):
    parameter = nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([parameter], 0.01)
    def step():
        parameter.sum().backward()
        optimizer.step()
    print("begun")
    for _ in range(count):
        step()
        time.sleep(0.05)
    wait(path) if path else None

def train_until_recorded(rank_that_dies):
    from torch.optim.optimizer import register_optimizer_step_post_hook
    def recorded(optimizer, *_):
        number = next(recording) if torch.autograd._profiler_enabled() else 0
        if number == 3 and dist.get_rank() == rank_that_dies:
            os.kill(os.getpid(), signal.SIGKILL)
    recording = itertools.count()
    register_optimizer_step_post_hook(recorded)
    train("/never")

def steps_in_own_profile(end):
    from torch.profiler import profile
    parameter = nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([parameter], 0.01)
    def step():
        parameter.sum().backward()
        optimizer.step()
    print("begun")
    recorded = 0
    while recorded < 3:
        step()
        recorded += torch.autograd._profiler_enabled()
    with profile() as found:
        print("profiling")
        while not os.path.exists(end):
            step()
            time.sleep(0.001)
    return len(found.events())

def numbered_steps(path):
    accelerator = Accelerator()
    parameter = nn.Parameter(torch.zeros(4))
    optimizer, number = accelerator.prepare(torch.optim.SGD([parameter], 0.01)), 0
    while not os.path.exists(path):
        with torch.profiler.record_function(f"step {number}"):
            parameter.sum().backward()
        optimizer.step()
        number += 1
        if number == 50:
            print("training")
        time.sleep(0.002 if accelerator.process_index else 0.001)
"""


@pytest.fixture
def prepared(notebook: Notebook) -> Notebook:
    """A notebook with these functions, in a cell of their own."""
    notebook.check(WORK)
    return notebook


def step_numbers(path: Path) -> set[str]:
    return {event["name"] for event in trace(path) if re.fullmatch(r"step \d+", event["name"])}


def trace(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        found: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return found


def test_a_profile_shows_the_steps_of_all_ranks_on_one_clock(prepared: Notebook, tmp_path: Path) -> None:
    notebook, go = prepared, tmp_path / "go"
    cell = notebook.check(f"job = notebook_launcher(train, ({str(go)!r}, 0.02), num_processes=2, block=False)")
    notebook.read_until_ranks_wrote(cell, "training", 2)
    shown = notebook.check("found = job.profile(3); found")
    assert shown.value is not None
    head, first, second, *_ = shown.value.splitlines()
    assert head.startswith("train() on ranks 0-1: 3 steps, ")
    assert first.startswith("rank 0: ")
    assert second.startswith("rank 1: ")
    assert "communication" in first
    assert "aten::addmm" in shown.value
    assert "gloo:all_reduce" in shown.value
    idle, waiting = notebook.value("[(each.gaps, each.communication) for each in found.ranks.values()]")
    assert idle[1] > 0.05  # rank 0 is in the all-reduce, while rank 1 sleeps three times
    assert waiting[0] > 0.05
    assert "USDT" not in cell.text

    notebook.check(f"found.save({str(tmp_path / 'traces')!r})")
    assert sorted(each.name for each in (tmp_path / "traces").iterdir()) == [
        "merged.json.gz",
        "rank-0.json.gz",
        "rank-1.json.gz",
        "summary.html",
    ]
    merged = trace(tmp_path / "traces" / "merged.json.gz")
    reduced: dict[int, list[tuple[float, float]]] = {0: [], 1: []}
    for event in merged:
        if event["name"] == "gloo:all_reduce":
            reduced[event["pid"] // 1000].append((event["ts"], event["ts"] + event["dur"]))
    assert [*map(len, reduced.values())] == [3, 3]
    pairs = zip(
        sorted(reduced[0]), sorted(reduced[1]), strict=True
    )  # of one step each: both ranks record the same ones
    at_once = [one[0] < other[1] and other[0] < one[1] for one, other in pairs]
    assert all(at_once), f"no all-reduce ends before all ranks have begun it, but {reduced}"

    one = notebook.check(f"%accelerate profile --steps 1 --rank 1 --save {tmp_path}/one")
    assert one.value is not None
    assert one.value.startswith("train() on rank 1: 1 step, ")
    assert (tmp_path / "one" / "rank-1.json.gz").exists()
    assert "has no rank 7: its ranks are 0 to 1" in notebook.run("job.profile(rank=7)").error_text
    assert "steps=0 can't be profiled" in notebook.run("job.profile(0)").error_text
    assert (
        "timeout must be a number of seconds above 0 and at most 3600, not 0"
        in notebook.run("job.profile(timeout=0)").error_text
    )

    both = """
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor() as pool:
        first = pool.submit(job.profile, 20)
        second = pool.submit(job.profile, 20)
        errors = [each.exception() for each in (first, second)]
    """
    notebook.check(both)
    refused = notebook.value("[str(each) for each in errors if each is not None]")
    assert len(refused) == 1
    assert refused[0].endswith(
        "ranks 0-1 sent no trace: it is being profiled already: wait until that profile is there"
    )
    go.touch()
    notebook.check("job.result(timeout=20)")
    ended = notebook.run("job.profile()")
    assert ended.error == "JobEndedError"
    assert "train() has ended (done), so its steps can't be profiled" in ended.error_text


def test_a_function_without_steps_is_told_from_one_whose_steps_are_over(prepared: Notebook, tmp_path: Path) -> None:
    go = tmp_path / "go"
    cell = prepared.check(f"job = notebook_launcher(wait, ({str(go)!r},), num_processes=2, block=False)")
    prepared.read_until_ranks_wrote(cell, "waiting", 2)
    nothing = prepared.run("job.profile(timeout=0.2)")
    assert nothing.error == "TimeoutError"
    assert "wait() can't be profiled now: ranks 0-1 sent no trace: no training step ended within 0.2 s" in (
        nothing.error_text
    )
    go.touch()
    prepared.check("job.result(20)")

    go.unlink()
    cell = prepared.check(f"job = notebook_launcher(steps, (8, {str(go)!r}), num_processes=1, block=False)")
    prepared.read_until(cell, "begun")
    few = prepared.run("job.profile(1000, timeout=1)").error_text
    assert "rank 0 sent no trace: only " in few
    assert " of 1000 steps ended within 1 s" in few
    go.touch()
    prepared.check("job.result(20)")


def test_a_function_that_ends_leaves_the_steps_before(prepared: Notebook) -> None:
    text = prepared.value(
        "job = notebook_launcher(steps, (10,), num_processes=2, block=False)\n"
        "repr(job.profile(1000))"  # at once: it waits for the ranks to start
    )
    assert text.startswith("steps() on ranks 0-1: ")
    assert "rank 1: its function ended after " in text
    prepared.check("assert job.result(20) is None")


@pytest.mark.parametrize("size", [1, 2])
def test_a_rank_that_dies_meanwhile_leaves_the_steps_of_the_others(prepared: Notebook, size: int) -> None:
    launched = f"job = notebook_launcher(train_until_recorded, ({size - 1},), num_processes={size}, block=False)"
    died = prepared.run(f"{launched}\njob.profile(1000)")
    if size == 1:
        assert died.error == "JobEndedError"
        assert "train_until_recorded() has ended (failed), so its steps can't be profiled" in died.error_text
    else:
        assert died.value is not None, died.error_text
        assert died.value.startswith("train_until_recorded() on rank 0: ")
        assert "rank 1 ended before it sent a trace" in died.value


def test_a_profiler_of_the_code_comes_first(prepared: Notebook, tmp_path: Path) -> None:
    end = tmp_path / "end"
    cell = prepared.check(
        f"job = notebook_launcher(steps_in_own_profile, ({str(end)!r},), num_processes=1, block=False)"
    )
    prepared.read_until(cell, "begun")
    text = prepared.value("repr(job.profile(1000, timeout=20))")
    assert "rank 0: its code started a profiler of its own after " in text
    prepared.read_until(cell, "profiling")
    refused = prepared.run("job.profile()").error_text
    assert "rank 0 sent no trace: another profiler of torch is active there" in refused
    end.touch()
    assert prepared.value("job.result(20)")[0] > 10, "it has recorded its own steps"


def test_the_same_steps_are_profiled_on_ranks_that_do_not_wait_for_each_other(
    prepared: Notebook, tmp_path: Path
) -> None:
    notebook, end = prepared, tmp_path / "end"
    cell = notebook.check(f"job = notebook_launcher(numbered_steps, ({str(end)!r},), num_processes=2, block=False)")
    notebook.read_until_ranks_wrote(cell, "training", 2)
    notebook.check(f"job.profile(3).save({str(tmp_path / 'traces')!r})")
    end.touch()
    first, second = (step_numbers(tmp_path / "traces" / f"rank-{rank}.json.gz") for rank in range(2))
    assert len(first) == 3
    assert first == second
    notebook.check("job.result(20)")


def test_a_detached_job_is_profiled_by_the_process_that_runs_it(prepared: Notebook, tmp_path: Path) -> None:
    prepared.check(f"job = notebook_launcher(train, ({str(tmp_path / 'go')!r},), num_processes=2, detach=True)")
    text = prepared.value("repr(job.profile(2))")
    (tmp_path / "go").touch()
    assert text.startswith("train() on ranks 0-1: 2 steps, ")
    assert "gloo:all_reduce" in text
    prepared.check("job.result(20)")
