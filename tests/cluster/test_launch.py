"""Launches from a real kernel onto two machines: what one machine does, two do."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.conftest import PRELUDE, Cluster
from tests.live_notebook import Notebook, wait_until

PROFILED = 200.0
"""By how many microseconds the times of torch's profiler may differ from its marks on a busy machine."""


def test_ranks_are_spread_over_the_machines(notebook: Notebook):
    cell = notebook.check("notebook_launcher(place)")
    assert cell.value is not None
    assert eval(cell.value) == [[rank, rank % 2, rank // 2, 4, 2] for rank in range(4)]
    assert sorted(cell.lines[:4]) == [f"[{rank}] rank {rank}" for rank in range(4)]


def test_ranks_of_two_machines_form_one_group(notebook: Notebook):
    notebook.check("""
    def add():
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        total = torch.tensor(float(dist.get_rank()))
        dist.all_reduce(total)
        return total
    """)
    assert notebook.value("[value.item() for value in notebook_launcher(add)]") == [6.0] * 4


def test_a_large_capture_and_a_large_value_travel(notebook: Notebook):
    notebook.check("""
    import numpy as np
    data = np.arange(4_000_000.0)

    def double():
        data[0] = 7.0  # each rank has its own
        return data * 2
    """)
    assert notebook.value("[(float(each[0]), float(each[-1])) for each in notebook_launcher(double)]") == (
        [(14.0, 2 * 3_999_999.0)] * 4
    )
    assert notebook.value("float(data[0])") == 0.0


def test_much_output_is_neither_lost_nor_out_of_order(notebook: Notebook):
    """More than a pipe, and what may be on its way, hold."""
    notebook.check("""
    from notebook_accel import attach

    def speak():
        for number in range(40_000):
            print(number, "x" * 60)
    """)
    notebook.check("notebook_launcher(speak)")
    for rank in range(4):
        told = notebook.value(f"attach().log({rank}, last=None)").splitlines()
        assert [line.split()[0] for line in told] == [str(number) for number in range(40_000)]


def test_progress_arrives(notebook: Notebook):
    notebook.check("""
    def train():
        from tqdm import tqdm

        for step in tqdm(range(50)):
            report(loss=1 / (step + 1))
            time.sleep(0.01)

    job = notebook_launcher(train, block=False)
    job.wait(30)
    """)
    assert notebook.value("[state.metrics['loss'] for state in job.ranks]") == [1 / 50] * 4
    assert notebook.value("[next(iter(state.bars.values())).n for state in job.ranks]") == [50] * 4


def test_the_users_own_modules_and_folder_are_there_as_they_are_now(notebook: Notebook):
    notebook.check("""
    def read():
        import own_module

        return own_module.VALUE, os.getcwd()
    """)
    for value in (1, 2):
        notebook.check(f"open('own_module.py', 'w').write('VALUE = {value}')")
        assert notebook.value("{found[0] for found in notebook_launcher(read)}") == {value}
    assert notebook.value("{found[1] for found in notebook_launcher(read)} == {os.getcwd()}")


def test_what_ranks_will_need_is_imported_on_the_machines_beforehand(notebook: Notebook):
    call = "notebook_launcher(lambda: 'yaml' in sys.modules)"
    assert not any(notebook.value(call))
    notebook.check("import yaml")
    wait_until(lambda: all(notebook.value(call)), 60)


def test_the_environment_is_the_notebooks_but_for_what_is_the_machines(notebook: Notebook):
    notebook.check("os.environ['OF_THE_NOTEBOOK'] = 'yes'; os.environ['PATH'] += ':/of/the/notebook'")
    try:
        found = notebook.value(
            "notebook_launcher(lambda: [os.environ.get(name) for name in ('OF_THE_NOTEBOOK', 'PATH', 'GIVEN')], "
            "env={'GIVEN': '1'})"
        )
    finally:
        notebook.check("del os.environ['OF_THE_NOTEBOOK']")
    for mine, path, given in found:
        assert (mine, given) == ("yes", "1")
        assert "/of/the/notebook" not in path


def test_a_job_leaves_the_notebook_free_and_tells_where_its_ranks_are(notebook: Notebook):
    cell = notebook.check("job = notebook_launcher(wait, block=False)")
    notebook.read_until(cell, "waiting")
    assert notebook.value("6 * 7") == 42
    wait_until(lambda: notebook.value("all(state.phase.value == 'running' for state in job.ranks)"))
    assert notebook.value("sorted(job.stacks().threads)") == [0, 1, 2, 3]
    assert notebook.value("[*job.flamegraph(0.2).samples]") == [0, 1, 2, 3]
    assert notebook.value("len({state.host for state in job.ranks})") == 2
    notebook.check("job.cancel(); job.wait(10)")
    assert notebook.value("job.status.value") == "cancelled"


def test_the_steps_of_all_machines_are_profiled_on_one_time_axis(notebook: Notebook, tmp_path: Path):
    """Long where it comes first: both machines import torch."""
    notebook.check("""
    def train():
        import time
        import torch
        import torch.distributed as dist
        from notebook_accel import Accelerator

        parameter = torch.nn.Parameter(torch.zeros(1000))
        optimizer = Accelerator().prepare(torch.optim.SGD([parameter], 0.01))
        while True:
            parameter.sum().backward()
            dist.all_reduce(parameter.grad)
            optimizer.step()
            print("stepped")
            time.sleep(0.05)
    """)
    cell = notebook.check("job = notebook_launcher(train, block=False)")
    notebook.read_until_ranks_wrote(cell, "stepped", 4)
    shown = notebook.check("found = job.profile(4); found")
    assert shown.value is not None
    assert shown.value.startswith("train() on ranks 0-3: 4 steps, ")
    alignment = re.search(r"several machines, whose clocks were aligned to within ([\d.e+]+) ms when", shown.value)
    assert alignment is not None, shown.value
    aligned = 1e3 * float(alignment[1]) + PROFILED
    notebook.check(f"found.save({str(tmp_path)!r})")
    with gzip.open(tmp_path / "merged.json.gz", "rt") as file:
        events = json.load(file)["traceEvents"]
    spans: dict[int, list[tuple[float, float]]] = {rank: [] for rank in range(4)}
    for event in events:
        if event["name"] == "gloo:all_reduce":
            spans[event["pid"] // 1000].append((event["ts"], event["ts"] + event["dur"]))
    assert [len(each) for each in spans.values()] == [4] * 4
    for step in zip(*map(sorted, spans.values()), strict=True):  # the same on each rank
        last_begun, first_ended = max(begin for begin, _ in step), min(end for _, end in step)
        assert last_begun < first_ended + aligned, f"an all-reduce ends before all ranks have begun it: {spans}"
    rows = notebook.value("job.collectives().groupby('rank').size().to_dict()")
    assert set(rows) == {0, 1, 2, 3}
    notebook.check("job.cancel(); job.wait(10)")


def test_cells_run_on_the_machines_and_keep_their_names(notebook: Notebook):
    notebook.check("%%accelerate\nkept = rank * 10")
    cell = notebook.check("""%%accelerate
    import torch, torch.distributed as dist
    total = torch.tensor(float(kept)); dist.all_reduce(total)
    total.item()
    """)
    assert "60.0" in cell.text
    notebook.check("%accelerate restart")
    cell = notebook.run("%%accelerate\nkept")
    assert "NameError" in f"{cell.error} {cell.error_text}"
    notebook.check("%accelerate stop")


def test_a_failure_starts_the_whole_group_again(notebook: Notebook):
    notebook.check("""
    def train():
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "3":
            raise ValueError("the first time")
        return int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    """)
    cell = notebook.check("notebook_launcher(train, max_restarts=1)")
    assert cell.value == "[1, 1, 1, 1]"
    assert "starting again (attempt 2 of 2)" in cell.text


def test_a_detached_job_runs_on_the_machines(notebook: Notebook):
    """Its driver waits for agents of its own."""
    notebook.check("job = notebook_launcher(place, detach=True)")
    assert notebook.value("len(job.result(90))", timeout=100) == 4


def test_arguments_override_what_the_magic_has_set(notebook: Notebook):
    """It comes last with this kernel: agents of other sizes are started, and the next launch would wait for its own."""
    assert notebook.value("[found[2] for found in notebook_launcher(place, num_processes=2)]") == [0, 1]


@pytest.mark.parametrize("way", ["auto", pytest.param("client", marks=pytest.mark.nightly)])
def test_a_cluster_is_found_in_other_ways(cluster: Cluster, open_notebook: Callable[..., Notebook], way: str):
    """`auto` is the one that this machine is a node of; through the head's client server it need not be one."""
    address = cluster.client if way == "client" else way
    notebook = open_notebook()
    notebook.check(PRELUDE)
    call = f"notebook_launcher(place, num_processes=2, num_nodes=2, device='cpu', cluster={address!r})"
    cell = notebook.check(call, timeout=110)
    assert cell.value == "[[0, 0, 0, 2, 1], [1, 0, 1, 2, 1]]"
    cell = notebook.begin(call.replace("place", "wait"))
    notebook.read_until(cell, "waiting")
    notebook.interrupt()
    assert notebook.finish(cell, timeout=30).error == "KeyboardInterrupt"
    notebook.check("import sys; assert 'ray' not in sys.modules")
