"""What breaks on a Ray cluster breaks on Slurm's machines too, and ends alike. The rest happens within an agent."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.cluster import preempted
from tests.cluster.failures_at_night import (  # noqa: F401
    test_a_bridge_that_is_killed_is_replaced,
    test_a_killed_rank_is_named_before_those_that_miss_it,
    test_a_training_ends_with_a_checkpoint_when_a_machine_shuts_down,
    test_an_error_names_the_rank_and_its_machine,
)
from tests.cluster.test_failures import (  # noqa: F401
    test_a_kernel_that_is_killed_leaves_nothing_anywhere,
    test_a_machine_that_is_gone_is_named_and_the_next_launch_takes_another,
    test_an_agent_that_is_killed_takes_its_ranks_with_it,
    test_an_interrupt_ends_the_ranks_and_what_they_have_started,
)
from tests.live_notebook import Notebook


def test_a_training_ends_with_a_checkpoint_when_slurm_signals(notebook: Notebook, tmp_path: Path):
    """As it does before a limit of time, with `--signal=TERM@60`, and when it preempts an allocation."""
    cell = preempted.begin(notebook, tmp_path)
    subprocess.run(["scancel", "--signal=TERM", "--user=root"], check=True)
    notebook.finish(cell, timeout=60)
    preempted.check_ended(cell, tmp_path, "the shutdown of (?:ada|bob)|SIGTERM")
