"""What breaks on a Ray cluster breaks on hosts over ssh too, and ends alike. The rest happens within an agent."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from tests.cluster.conftest import PRELUDE
from tests.cluster.outside_ray import Machines
from tests.cluster.test_failures import (  # noqa: F401
    test_a_bridge_that_is_killed_is_replaced,
    test_a_kernel_that_is_killed_leaves_nothing_anywhere,
    test_a_killed_rank_is_named_before_those_that_miss_it,
    test_a_machine_that_is_gone_is_named_and_the_next_launch_takes_another,
    test_an_agent_that_is_killed_takes_its_ranks_with_it,
    test_an_error_names_the_rank_and_its_machine,
    test_an_interrupt_ends_the_ranks_and_what_they_have_started,
)
from tests.live_notebook import Notebook, wait_until


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
