"""What a Ray cluster does, Slurm does too: here is what differs by how agents start, and what is Slurm's alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cluster.outside_ray import Machines
from tests.cluster.test_launch import (  # noqa: F401
    test_a_detached_job_runs_on_the_machines,
    test_a_job_leaves_the_notebook_free_and_tells_where_its_ranks_are,
    test_a_large_capture_and_a_large_value_travel,
    test_arguments_override_what_the_magic_has_set,
    test_ranks_are_spread_over_the_machines,
    test_ranks_of_two_machines_form_one_group,
    test_the_environment_is_the_notebooks_but_for_what_is_the_machines,
    test_the_users_own_modules_and_folder_are_there_as_they_are_now,
)
from tests.live_notebook import Notebook

_SCRIPT = """
import os
from notebook_accel import notebook_launcher
print(notebook_launcher(lambda: os.environ["GROUP_RANK"], num_processes=4, num_nodes=2, cluster="slurm", device="cpu"))
"""


def test_machines_are_known_by_slurms_names(notebook: Notebook):
    notebook.check("""
    from notebook_accel.launch.job.describe import describe

    def tell():
        report(loss=1.0)
    """)
    notebook.check("job = notebook_launcher(tell, block=False)")
    assert notebook.value("job.wait(20), [state.host for state in job.ranks]") == (True, ["ada", "ada", "bob", "bob"])
    said = notebook.value("describe(job)").splitlines()
    named = [line.rstrip(":").split()[:2] for line in said if line.startswith(("on ", "rank "))]
    assert named == [["on", "ada"], ["rank", "0"], ["rank", "1"], ["on", "bob"], ["rank", "2"], ["rank", "3"]], said


def test_ranks_do_not_take_themselves_for_slurms_tasks(notebook: Notebook):
    """Lightning, for one, would take its rank from there."""
    names = notebook.value("notebook_launcher(lambda: [name for name in os.environ if name.startswith('SLURM')])[3]")
    assert set(names) <= {"SLURM_CONF", "SLURM_JOB_ID", "SLURM_TMPDIR"}


def allocated(*options: str) -> subprocess.CompletedProcess[str]:
    """Runs the script in an allocation."""
    command = ["salloc", "--nodes=2", "--quiet", *options, sys.executable, "-c", _SCRIPT]
    return subprocess.run(command, capture_output=True, text=True, timeout=110)


def test_in_an_allocation_its_machines_are_used(cluster: Machines):
    done = allocated("--ntasks-per-node=2")
    assert done.stdout.strip() == "['0', '0', '1', '1']", done.stderr


def test_an_allocation_that_is_too_small_says_what_it_has(cluster: Machines):
    done = allocated("--ntasks-per-node=1")
    assert done.returncode == 1
    assert "asked for 2 machines with 2 CPUs each, found 2: ada (127.0.0.1): 1 CPU" in done.stderr


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("num_processes=100, num_nodes=2", "asked for 2 machines with 50 CPUs each, found 2: ada (127.0.0.1): 32 CPUs"),
        ("num_processes=3, num_nodes=3", "asked for 3 machines"),
        ("num_processes=4, num_nodes=2, insecure=True", "insecure=True has no effect with cluster='slurm'"),
    ],
)
def test_what_cannot_be_had_is_refused_at_once(notebook: Notebook, call: str, said: str):
    cell = notebook.run(f"notebook_launcher(place, {call})")
    assert said in cell.error_text, cell
    assert cell.seconds < 5
