"""What breaks: ranks, agents, machines, the kernel. Errors name the rank and its machine, and nothing is left."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.cluster import preempted
from tests.cluster.conftest import PRELUDE, Cluster, Shared
from tests.live_notebook import Cell, Notebook, wait_until

LEAVE = """
def leave():
    far = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    print("has started", far.pid, flush=True)
    wait()
"""


def started(notebook: Notebook) -> tuple[Cell, list[int]]:
    """Has every rank start a process in a session of its own; returns the cell, which runs, and those."""
    notebook.check(LEAVE)
    cell = notebook.begin("notebook_launcher(leave)")
    notebook.wait_until(lambda: cell.stdout.count("has started") == 4 or cell.ended, 30)
    assert not cell.ended, cell
    return cell, [int(line.split()[-1]) for line in cell.lines if "has started" in line]


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_an_error_names_the_rank_and_its_machine(cluster: Cluster, notebook: Notebook):
    notebook.check("""
    def fail():
        if os.environ["RANK"] == "3":
            raise ValueError("so it goes")
        wait()
    """)
    cell = notebook.run("notebook_launcher(fail)")
    assert cell.error == "RankError"
    assert f"rank 3 of 4 (on {cluster.machines[1]}) raised ValueError: so it goes" in cell.error_text
    assert 'raise ValueError("so it goes")' in cell.error_text
    assert "Ranks 0-2 were stopped." in cell.error_text
    assert cell.seconds < 20


def test_a_killed_rank_is_named_before_those_that_miss_it(cluster: Cluster, notebook: Notebook):
    notebook.check("""
    def train():
        import torch, torch.distributed as dist

        dist.init_process_group("gloo")
        while True:
            dist.all_reduce(torch.ones(1))
            if os.environ["RANK"] == "2":
                os.kill(os.getpid(), signal.SIGKILL)
    """)
    cell = notebook.run("notebook_launcher(train)")
    assert cell.error_text.startswith(f"rank 2 of 4 (on {cluster.machines[1]}) was killed by SIGKILL")


def test_a_crash_shows_where_it_was(notebook: Notebook):
    notebook.check("""
    def crash():
        import ctypes

        if os.environ["RANK"] == "2":
            ctypes.string_at(0)
        wait()
    """)
    cell = notebook.run("notebook_launcher(crash)")
    assert "was killed by SIGSEGV" in cell.error_text
    assert "ctypes.string_at(0)" in cell.error_text


def test_an_interrupt_ends_the_ranks_and_what_they_have_started(notebook: Notebook):
    cell, left = started(notebook)
    notebook.interrupt()
    notebook.finish(cell, timeout=30)
    assert cell.error == "KeyboardInterrupt"
    wait_until(lambda: not any(map(is_alive, left)))


def test_a_machine_that_is_gone_is_named_and_the_next_launch_takes_another(
    cluster: Cluster, shared: Shared, notebook: Notebook
):
    """Ray takes its time to count a node out, and to start another."""
    notebook.check("""
    def train():
        import torch, torch.distributed as dist

        dist.init_process_group("gloo")
        print("training", flush=True)
        while True:
            dist.all_reduce(torch.ones(1))
            time.sleep(0.01)
    """)
    cell = notebook.begin("notebook_launcher(train)")
    notebook.read_until(cell, "training")
    cluster.tell("remove")
    notebook.finish(cell, timeout=30)
    assert cell.error == "RankError", cell
    head = cell.error_text.splitlines()[0]
    assert any(f"were lost with machine {name}" in head for name in cluster.machines), cell.error_text
    shared.get()  # with a second machine again
    assert notebook.value("len(notebook_launcher(place))") == 4


def test_an_agent_that_is_killed_takes_its_ranks_with_it(cluster: Cluster, notebook: Notebook):
    cell, left = started(notebook)
    cluster.agents()[-1].kill()
    notebook.finish(cell, timeout=20)
    assert cell.error == "RankError", cell
    assert "were lost with machine" in cell.error_text
    wait_until(lambda: not any(map(is_alive, left)))


def test_a_training_ends_with_a_checkpoint_when_a_machine_shuts_down(
    cluster: Cluster, notebook: Notebook, tmp_path: Path
):
    cell = preempted.begin(notebook, tmp_path)
    agent = cluster.agents()[-1]
    agent.terminate()
    notebook.finish(cell, timeout=60)
    names = "|".join(re.escape(name) for name in cluster.machines)
    preempted.check_ended(cell, tmp_path, f"the shutdown of (?:{names})")
    wait_until(lambda: not is_alive(agent.pid))


def test_a_bridge_that_is_killed_is_replaced(notebook: Notebook):
    cell, left = started(notebook)
    [bridge] = [
        process for process in notebook.processes() if "cluster.bridge.main:main" in " ".join(process.cmdline())
    ]
    bridge.kill()
    notebook.finish(cell, timeout=20)
    assert cell.error == "LaunchError", cell
    wait_until(lambda: not any(map(is_alive, left)), 35)
    assert notebook.value("len(notebook_launcher(place))", timeout=110) == 4


def test_a_kernel_that_is_killed_leaves_nothing_anywhere(cluster: Cluster, open_notebook: Callable[..., Notebook]):
    """A kernel of its own waits for agents of its own."""
    before = {process.pid for process in cluster.agents()}
    notebook = open_notebook()
    notebook.check(PRELUDE + cluster.setting)
    notebook.check("notebook_launcher(int)", timeout=110)
    _, left = started(notebook)
    own = [process for process in cluster.agents() if process.pid not in before]
    assert len(own) == 2
    os.kill(notebook.pid, signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, left)))
    wait_until(lambda: not any(is_alive(process.pid) for process in own))
    wait_until(lambda: not notebook.pids())
