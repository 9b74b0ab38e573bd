"""What breaks between two machines, each with a network and processes of its own, seen from a real kernel.

A bound here is where a fallback would act. What it takes on a quiet machine is in docs/multi-node.md; `-s` shows it.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from notebook_accel.launch.cluster.protocol import LEASE, SILENCE
from notebook_accel.launch.wire.constants import GRACE
from tests.cluster.conftest import PRELUDE
from tests.cluster.machines import NAMES, Machines, kernel_of, ranks_of
from tests.hosts import host
from tests.kernel.conftest import end
from tests.launch.own_processes import outlive
from tests.live_notebook import Cell, Notebook

pytestmark = [
    pytest.mark.skipif(bool(host.why_not()), reason=host.why_not() or "there are namespaces"),
    pytest.mark.timeout(300),  # the first waits for two Ray nodes, a kernel and its agents
]

FIRST = 100.0
"""Seconds for a launch that waits for agents, on a machine with other work."""
TRAIN = """
def train():
    import torch, torch.distributed as dist

    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    dist.init_process_group("gloo")
    dist.barrier()
    print("rank", os.environ["RANK"], "is", os.getpid(), flush=True)
    while True:
        dist.all_reduce(torch.ones(1))
        time.sleep(0.01)

def compute():
    print("rank", os.environ["RANK"], "is", os.getpid(), flush=True)
    wait()
"""


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    with tempfile.TemporaryDirectory(prefix="r-", dir="/tmp") as home:
        found = Machines(Path(home))
        yield found
        found.close()


class Kernel:
    """A kernel on one of the machines, made anew where a test has used it up."""

    def __init__(self, machines: Machines, index: int, folder: Path) -> None:
        self._machines = machines
        self._options = machines.kernel_on(index, folder)
        self._notebook: Notebook | None = None

    def get(self) -> Notebook:
        self._machines.join()
        if self._notebook is None or not self._notebook.is_usable():
            self.drop()
            self._notebook = Notebook(**self._options)
            self._notebook.check(PRELUDE + TRAIN + self._machines.setting)
        return self._notebook

    def drop(self) -> None:
        notebook, self._notebook = self._notebook, None
        if notebook is not None:
            end(notebook, 10)


@pytest.fixture(scope="module")
def kernel(machines: Machines, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    found = Kernel(machines, 0, tmp_path_factory.mktemp("first"))
    yield found
    found.drop()


@pytest.fixture(scope="module")
def far_kernel(machines: Machines, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    found = Kernel(machines, 1, tmp_path_factory.mktemp("second"))
    yield found
    found.drop()


@pytest.fixture
def notebook(kernel: Kernel) -> Notebook:
    """Next to Ray's head."""
    return kernel.get()


@pytest.fixture
def far_notebook(far_kernel: Kernel) -> Notebook:
    """On the other machine."""
    return far_kernel.get()


def begun(machines: Machines, notebook: Notebook, function: str = "train") -> tuple[Cell, dict[int, int]]:
    """Has four ranks run; returns the cell, and each rank's process."""
    cell = notebook.begin(f"notebook_launcher({function})")
    notebook.read_while(lambda: cell.stdout.count(" is ") < 4 and not cell.ended, timeout=FIRST)
    assert not cell.ended, cell
    told = [line.split() for line in cell.lines if " is " in line]
    return cell, {int(rank): machines.hosts[int(rank) // 2].outside(int(own)) for *_, rank, _, own in told}


def kill(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def after(event: Callable[[], object], cell: Cell, notebook: Notebook, bound: float) -> tuple[float, float]:
    """Seconds from an event to the end of a cell, and to that of all that its launch has started, anywhere."""
    started = ranks_of(notebook)
    assert len(started) >= 4
    began = time.monotonic()
    event()
    with ThreadPoolExecutor() as pool:
        gone = pool.submit(lambda: (outlive(started, bound), time.monotonic() - began))
        notebook.finish(cell, timeout=bound)
        told = time.monotonic() - began
        left, ended = gone.result()
    assert not left, f"left behind: {[psutil.Process(pid) for pid in left]}"
    print(f"\n{cell.error}: told after {told:.2f} s, all gone after {ended:.2f} s")
    return told, ended


def launches_again(notebook: Notebook) -> None:
    assert notebook.value("len(notebook_launcher(place))", timeout=FIRST) == 4


def test_ranks_are_on_both_machines(notebook: Notebook):
    cell = notebook.check("sorted({found[2] for found in notebook_launcher(place)})", timeout=FIRST)
    assert cell.value == "[0, 1]"


def test_a_rank_that_is_killed_is_named_with_its_machine(machines: Machines, notebook: Notebook):
    """Two launches, each of which is killed."""
    for function in ("train", "compute"):  # the others notice, or do not
        cell, ranks = begun(machines, notebook, function)
        after(lambda: kill(ranks[2]), cell, notebook, 15)  # noqa: B023
        assert cell.error_text.startswith(f"rank 2 of 4 (on {NAMES[1]}) was killed by SIGKILL"), cell.error_text
    launches_again(notebook)


def test_an_interrupt_ends_all_ranks_on_both_machines(machines: Machines, notebook: Notebook):
    """Long: on each machine a fork server starts anew."""
    cell, _ = begun(machines, notebook)
    told, _ = after(notebook.interrupt, cell, notebook, 15)
    assert cell.error == "KeyboardInterrupt"
    assert told < GRACE  # they ended by themselves
    launches_again(notebook)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"RAY_AUTH_MODE": None}, "is used without a token: anyone who can reach it can run code on all of its"),
        ({"RAY_AUTH_TOKEN": "0" * 64}, "did not accept this notebook's token"),
        ({"RAY_AUTH_TOKEN": None, "HOME": "/nowhere"}, "this notebook has no token"),
    ],
    ids=["no mode", "a wrong one", "none"],
)
def test_who_does_not_know_the_token_is_told_what_to_do(
    machines: Machines, far_notebook: Notebook, changes: dict[str, str | None], said: str
):
    # A new engine, as if nothing had been launched before.
    cell = far_notebook.run(f"""
    from notebook_accel.launch import engines

    before = dict(os.environ)
    for name, value in {changes}.items():
        os.environ.pop(name) if value is None else os.environ.update({{name: value}})
    engines.for_cluster("{machines.address}").close()
    try:
        notebook_launcher(place)
    finally:
        os.environ.clear()
        os.environ.update(before)
    """)
    print(f"\ntold after {cell.seconds:.2f} s: {cell.error_text}")
    assert cell.error == "LaunchError"
    assert said in cell.error_text


def test_a_kernel_that_is_killed_leaves_nothing_anywhere(machines: Machines, far_notebook: Notebook):
    """The ranks have half a lease to hear of it, and a launch comes before."""
    launches_again(far_notebook)
    cell, _ = begun(machines, far_notebook)
    everything = [*far_notebook.pids()]
    ranks = ranks_of(far_notebook)
    began = time.monotonic()
    kill(kernel_of(far_notebook))
    assert not outlive(ranks, LEASE / 2), "they heard of it by themselves"
    print(f"\nall ranks gone after {time.monotonic() - began:.2f} s")
    assert not outlive(everything, 15), cell


def test_a_machine_that_dies_is_named(machines: Machines, notebook: Notebook):
    """Its silence is noticed after a while, and Ray's daemons start there again."""
    cell, _ = begun(machines, notebook)
    after(machines.crash_second, cell, notebook, SILENCE)
    head = cell.error_text.splitlines()[0]
    assert head.startswith(f"ranks 2-3 of 4 were lost with machine {NAMES[1]}: "), cell.error_text
    cell = notebook.run("notebook_launcher(place)", timeout=FIRST)
    assert "asked for 2 machines with 2 CPUs each, found 1: first (10.98.0.1)" in cell.error_text, cell
    machines.join()
    launches_again(notebook)


def test_a_cable_that_is_pulled_out_is_noticed_at_both_ends(machines: Machines, notebook: Notebook):
    """Silence is noticed within a lease, at each end by itself, and Ray takes as long to count the machine out."""
    cell, _ = begun(machines, notebook)
    try:
        told, _ = after(machines.pull_cable, cell, notebook, 2 * LEASE)  # the ranks that nobody can reach end too
    finally:
        machines.plug_cable()
    assert told < LEASE
    head = cell.error_text.splitlines()[0]
    assert head.startswith(f"ranks 2-3 of 4 were lost with machine {NAMES[1]}: "), cell.error_text
    cell = notebook.run("len(notebook_launcher(place))", timeout=FIRST)
    if cell.error is None:
        assert cell.value == "4"
        return
    # Ray has given the machine up meanwhile: it is to join again, as a new one.
    assert "asked for 2 machines with 2 CPUs each, found 1: first (10.98.0.1)" in cell.error_text, cell
    machines.crash_second()
    machines.join()
    launches_again(notebook)
