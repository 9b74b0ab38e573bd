"""What breaks: a rank, a machine, the kernel. Errors name the rank and its machine, and nothing is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from tests.cluster.conftest import PRELUDE, Shared
from tests.cluster.test_failures import is_alive, started
from tests.notebook import Notebook, wait_until
from tests.slurm.conftest import Cluster, agents
from tests.slurm.rig import NODES


def test_an_error_names_the_rank_and_its_machine(notebook: Notebook):
    notebook.check("""
    def fail():
        if os.environ["RANK"] == "3":
            raise ValueError("so it goes")
        wait()
    """)
    cell = notebook.run("notebook_launcher(fail)")
    assert "rank 3 of 4 (on bob) raised ValueError: so it goes" in cell.error_text
    assert "Ranks 0-2 were stopped." in cell.error_text


def test_an_interrupt_ends_the_ranks_and_what_they_have_started(notebook: Notebook):
    cell, left = started(notebook)
    notebook.interrupt()
    notebook.finish(cell, timeout=10)
    assert cell.error == "KeyboardInterrupt"
    wait_until(lambda: not any(map(is_alive, left)), 10)
    assert notebook.value("len(notebook_launcher(place))") == 4


def test_a_machine_that_is_gone_is_named_and_the_next_launch_takes_it_up_again(
    cluster: Cluster, shared: Shared, notebook: Notebook
):
    notebook.check("def train():\n    print('training', flush=True)\n    wait()")
    cell = notebook.begin("notebook_launcher(train)")
    notebook.read_until(cell, "training")
    cluster.tell("remove")
    notebook.finish(cell, timeout=30)
    assert cell.error == "RankError", cell
    assert cell.error_text.startswith("ranks 2-3 of 4 were lost with machine bob: its agent has ended"), cell.error_text
    shared.get()  # with the second machine again
    assert notebook.value("len(notebook_launcher(place))", timeout=100) == 4


def test_a_kernel_that_is_killed_leaves_nothing_anywhere(cluster: Cluster, open_notebook: Callable[..., Notebook]):
    before = {process.pid for process in agents()}
    notebook = open_notebook()
    notebook.check(PRELUDE + cluster.setting)
    notebook.check("notebook_launcher(int)", timeout=110)
    _, left = started(notebook)
    own = [process for process in agents() if process.pid not in before]
    assert len(own) >= len(NODES)
    os.kill(notebook.pid, signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, left)), 10)
    wait_until(lambda: not any(is_alive(process.pid) for process in own), 10)
