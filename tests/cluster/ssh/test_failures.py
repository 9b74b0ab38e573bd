"""What breaks on a Ray cluster breaks on hosts over ssh too, and ends alike. The rest happens within an agent."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

from tests.cluster import preempted
from tests.cluster.conftest import PRELUDE
from tests.cluster.failures_at_night import (  # noqa: F401
    test_a_bridge_that_is_killed_is_replaced,
    test_a_killed_rank_is_named_before_those_that_miss_it,
    test_a_training_ends_with_a_checkpoint_when_a_machine_shuts_down,
    test_an_error_names_the_rank_and_its_machine,
)
from tests.cluster.outside_ray import Machines
from tests.cluster.ssh.rig import Hosts
from tests.cluster.test_failures import (  # noqa: F401
    test_a_kernel_that_is_killed_leaves_nothing_anywhere,
    test_a_machine_that_is_gone_is_named_and_the_next_launch_takes_another,
    test_an_agent_that_is_killed_takes_its_ranks_with_it,
    test_an_interrupt_ends_the_ranks_and_what_they_have_started,
)
from tests.live_notebook import Notebook, wait_until


def test_a_training_continues_on_the_machines_that_do_not_shut_down(
    cluster: Machines, hosts: Hosts, notebook: Notebook, tmp_path: Path
):
    """Agents start again on the other machine, and import torch."""
    cell = preempted.begin(notebook, tmp_path, ", max_restarts=1, min_processes=1")
    try:
        hosts.shut_down("bob")
        wait_until(lambda: any(tmp_path.iterdir()), 30)
        (tmp_path / "quick").touch()
        notebook.finish(cell, timeout=90)
        assert cell.error is None, cell
        assert cell.value == "[1]"
        assert "bob is shutting down; starting again with 1 of 2 ranks (attempt 2 of 2)" in cell.text
        found = re.search(
            r"resuming from \S+/checkpoint_(\d+), which 2 ranks saved: in epoch 0, after (\d+) steps", cell.text
        )
        assert found is not None, cell.text
        assert found[1] == found[2]
        assert not hosts.processes("bob")
    finally:
        cluster.tell("add")


def test_a_kernel_that_is_killed_while_hosts_are_asked_leaves_nothing(
    cluster: Machines, open_notebook: Callable[..., Notebook]
):
    """Long on a busy machine: the kernel's own fork server hears of it once it has imported torch."""
    before = {process.pid for process in cluster.agents()}

    def started() -> set[int]:
        return {process.pid for process in cluster.agents()} - before

    notebook = open_notebook()
    notebook.check(PRELUDE + "%accelerate --cluster ssh://bob,ada -n 2 --device cpu")
    notebook.begin("notebook_launcher(int)")
    wait_until(started)
    os.kill(notebook.pid, signal.SIGKILL)
    wait_until(lambda: not started() and not notebook.pids())
