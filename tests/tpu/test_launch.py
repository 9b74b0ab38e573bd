"""Launches on torch_xla's CPU device, from a real kernel that all tests share."""

from collections.abc import Iterator

import pytest

from tests.kernel.conftest import end, nothing_is_left
from tests.live_notebook import Notebook, wait_until

PRELUDE = """
from notebook_accel import notebook_launcher, report
import os, signal, sys, threading, time

def me():
    import torch_xla.runtime
    return torch_xla.runtime.global_ordinal()
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[Notebook]:
    notebook = Notebook(env={"NOTEBOOK_ACCEL_DEVICE": "tpu"})
    notebook.check(PRELUDE)
    notebook.check("notebook_launcher(me, num_processes=1)", timeout=110)  # the server imports torch_xla
    yield notebook
    end(notebook)


@pytest.fixture
def notebook(shared: Notebook) -> Iterator[Notebook]:
    yield shared
    nothing_is_left(shared)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_run_on_devices_of_torch_xla(notebook: Notebook, ranks: int) -> None:
    notebook.check("""
        factor = 3
        def compute(values):
            import torch, torch_xla, torch_xla.runtime as xr
            device = torch_xla.device()
            total = (torch.tensor(values, device=device) * factor).sum().item()
            return xr.global_ordinal(), xr.world_size(), device.type, total
    """)
    results = notebook.value(f"notebook_launcher(compute, ([1.0, 2.0],), num_processes={ranks})")
    assert results == [(rank, ranks, "xla", 9.0) for rank in range(ranks)]


def test_arrays_and_tensors_travel(notebook: Notebook) -> None:
    notebook.check("""
        import numpy as np, torch
        big = np.arange(300_000.0)
        weights = torch.full((200_000,), 2.0)
        def use():
            import torch_xla
            return (weights.to(torch_xla.device()) * 3).cpu(), float(big.sum())
    """)
    notebook.check("results = notebook_launcher(use, num_processes=2)")
    assert notebook.value("[(r[0].sum().item(), bool(r[1] == big.sum())) for r in results]") == [(1.2e6, True)] * 2


def test_lines_are_told_apart_by_the_thread_that_prints_them(notebook: Notebook) -> None:
    cell = notebook.check("""
        def speak():
            import logging
            print("I am", me())
            print("all alike")
            print("to stderr", me(), file=sys.stderr)
            aside = threading.Thread(target=lambda: print("beside", me_of[threading.current_thread()]))
            me_of = {aside: me()}
            aside.start()
            aside.join()
        notebook_launcher(speak, num_processes=4)
    """)
    lines = set(cell.lines)
    assert {f"[{rank}] I am {rank}" for rank in range(4)} <= lines
    assert {f"[{rank}] beside {rank}" for rank in range(4)} <= lines
    assert {f"[{rank}] to stderr {rank}" for rank in range(4)} <= set(cell.stderr.splitlines())


def test_progress_is_told_apart_by_rank(notebook: Notebook) -> None:
    notebook.check("""
        from tqdm.auto import tqdm
        def count():
            for step in tqdm(range(10 + me()), desc=f"bar {me()}"):
                report(loss=float(me()), step=step)
        job = notebook_launcher(count, num_processes=3, block=False)
        job.wait()
    """)
    found = notebook.value(
        """
        [([(bar.description, bar.n, bar.total) for bar in rank.bars.values()], rank.metrics) for rank in job.ranks]
    """.strip()
    )
    assert found == [([(f"bar {rank}", 10 + rank, 10 + rank)], {"loss": float(rank)}) for rank in range(3)]


def test_an_error_names_its_rank_and_ends_the_others(notebook: Notebook) -> None:
    cell = notebook.run("""
        def fail():
            if me() == 1:
                raise ValueError("so it goes")
            while True:
                time.sleep(0.01)
        notebook_launcher(fail, num_processes=3)
    """)
    assert cell.error == "RankError"
    assert "rank 1 of 3 raised ValueError: so it goes" in cell.error_text
    assert 'raise ValueError("so it goes")' in cell.traceback


def test_a_rank_that_dies_ends_all(notebook: Notebook) -> None:
    cell = notebook.run("""
        def die():
            if me() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(1000)
        notebook_launcher(die, num_processes=2)
    """)
    assert cell.error == "RankError"
    assert "SIGKILL" in cell.error_text


def test_an_interrupt_ends_the_function_and_leaves_time_to_save(notebook: Notebook) -> None:
    cell = notebook.begin("""
        def wait():
            try:
                print("waiting", flush=True)
                while True:
                    time.sleep(0.01)
            except KeyboardInterrupt:
                print("saved", me())
                raise
        notebook_launcher(wait, num_processes=2)
    """)
    notebook.read_until(cell, "waiting")
    notebook.interrupt()
    notebook.finish(cell)
    assert cell.error == "KeyboardInterrupt"
    assert {"[0] saved 0", "[1] saved 1"} <= set(cell.lines)


def test_what_is_deaf_to_an_interrupt_is_ended(notebook: Notebook) -> None:
    cell = notebook.begin("""
        def stay():
            print("staying", flush=True)
            time.sleep(1000)
        notebook_launcher(stay, num_processes=2)
    """)
    notebook.read_until(cell, "staying")
    notebook.interrupt()
    notebook.read_until(cell, "interrupt again")
    notebook.interrupt()
    notebook.finish(cell)
    assert cell.error == "KeyboardInterrupt"


def test_launches_go_on_one_after_the_other(notebook: Notebook) -> None:
    assert notebook.value("[notebook_launcher(me, num_processes=n) for n in (1, 2, 4, 2)]") == [
        [0], [0, 1], [0, 1, 2, 3], [0, 1],
    ]  # fmt: skip


def test_a_runtime_that_the_kernel_has_initialized_is_no_obstacle_on_the_cpu(notebook: Notebook) -> None:
    notebook.check("import torch_xla; torch_xla.device()")
    assert notebook.value("notebook_launcher(me, num_processes=2)") == [0, 1]


def test_a_job_goes_on_beside_the_notebook(notebook: Notebook) -> None:
    notebook.check("job = notebook_launcher(me, num_processes=2, block=False)")
    assert notebook.value("job.result()") == [0, 1]


def test_a_detached_job_runs_without_the_notebook(notebook: Notebook) -> None:
    notebook.check("job = notebook_launcher(me, num_processes=2, detach=True)")
    assert notebook.value("job.result()", timeout=110) == [0, 1]
    wait_until(lambda: not notebook.launched(), 30)


def test_cells_run_on_a_rank_of_its_own_process_and_not_on_threads(notebook: Notebook) -> None:
    cell = notebook.run("%%accelerate -n 2\nprint(1)")
    assert cell.error is not None
    assert "threads of one process" in cell.error_text + cell.stderr
    assert "%%accelerate -n 1" in cell.error_text + cell.stderr
    # What was refused is not asked for again.
    cell = notebook.check("%%accelerate\nimport torch_xla\nkept = str(torch_xla.device())")
    cell = notebook.check("%%accelerate -n 1\nprint('on', kept)")
    assert "on xla:0" in cell.text
    notebook.check("%accelerate stop")


def test_the_overview_shows_what_stands_in_for_the_tpu(notebook: Notebook) -> None:
    cell = notebook.check("%accelerate")
    assert "torch_xla on the CPU" in cell.text
