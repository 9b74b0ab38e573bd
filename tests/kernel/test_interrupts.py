"""A table of ways to interrupt: the cell ends in `KeyboardInterrupt`, nothing is left, and the next launch works."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.kernel.conftest import GONE_WITHIN, STOPPED_WITHIN, nothing_is_left
from tests.live_notebook import OWN_SERVER, UNTRAINED, Notebook, lines_by_rank, wait_until

pytestmark = pytest.mark.early

GRACE = 5.0
"""Seconds that a rank has to end by itself."""


def files(notebook: Notebook) -> set[str]:
    """The names that processes of the notebook could have left on disk or in shared memory.

    Not torch's own cache of compiled code: whoever imports its compiler makes that folder, and it is meant to stay.
    """
    found = (os.path.join(folder, name) for folder in (notebook.temporary, "/dev/shm") for name in os.listdir(folder))
    return {path for path in found if not os.path.basename(path).startswith("torchinductor_")}


def assert_clean_and_ready(notebook: Notebook, before: set[str]) -> None:
    """Nothing is left of a launch, in memory or on disk, and another one works."""
    nothing_is_left(notebook)
    wait_until(lambda: files(notebook) <= before, GONE_WITHIN, lambda: f"left: {files(notebook) - before}")
    assert notebook.value("notebook_launcher(join, num_processes=2)") == [0, 1]


@dataclass(frozen=True)
class Interrupt:
    """What two ranks are doing when the interrupt comes. They print `ready` when they are."""

    name: str
    body: str
    within: float = STOPPED_WITHIN
    """Seconds from the interrupt to the end of the cell."""
    prints: str = ""
    again_after: str = ""
    """A second interrupt comes once this is printed."""


INTERRUPTS = [
    Interrupt("sleeping", 'print("ready"); time.sleep(600)'),
    Interrupt("computing", 'print("ready")\nwhile True: torch.ones(100).sum()'),
    Interrupt(
        "sitting in a collective",
        'rank = join(); print("ready")\nif rank: time.sleep(600)\ndist.barrier()',
        within=GRACE + STOPPED_WITHIN,
    ),
    Interrupt(
        "ignoring interrupts",
        'signal.signal(signal.SIGINT, signal.SIG_IGN); print("ready"); time.sleep(600)',
        within=GRACE + STOPPED_WITHIN,
    ),
    Interrupt(
        "ignoring interrupts and terminations, interrupted twice",
        """
signal.signal(signal.SIGINT, lambda *_: print("not now"))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready")
time.sleep(600)
""",
        again_after="not now",
        within=2.0,
    ),
    Interrupt(
        "saving",
        """
try:
    print("ready")
    time.sleep(600)
except KeyboardInterrupt:
    with open(f"saved-{os.environ['RANK']}", "w") as file:
        file.write("all of it")
    print("saved")
""",
        prints="saved",
    ),
    Interrupt(
        "saving for a while before ending the interrupt",
        """
try:
    print("ready")
    time.sleep(600)
except KeyboardInterrupt:
    time.sleep(1.5)
    print("saved")
    raise
""",
        prints="saved",
    ),
    Interrupt(
        "holding workers of a DataLoader",
        """
loader = torch.utils.data.DataLoader(torch.arange(100000), num_workers=2)
for index, batch in enumerate(loader):
    if index == 10:
        print("ready")
    if index > 10:
        time.sleep(0.05)
""",
    ),
    Interrupt(
        "holding a subprocess of its own session",
        """
import subprocess
subprocess.Popen(["sleep", "600"], start_new_session=True)
print("ready")
time.sleep(600)
""",
    ),
]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=pytest.mark.clock if case.within <= STOPPED_WITHIN else ())
        for case in INTERRUPTS
    ],
)
def test_an_interrupt_ends_ranks_that_are(notebook: Notebook, case: Interrupt):
    before = files(notebook)
    body = "\n".join("    " + line for line in case.body.strip().splitlines())
    notebook.check(f"def work():\n{body}")
    cell = notebook.begin("notebook_launcher(work, num_processes=2)")
    notebook.read_until_ranks_wrote(cell, "ready", 2)
    began = time.monotonic()
    notebook.interrupt()
    if case.again_after:
        notebook.read_until_ranks_wrote(cell, case.again_after, 2)
        notebook.interrupt()
    notebook.finish(cell, timeout=30)
    assert cell.error == "KeyboardInterrupt", cell
    assert len(cell.traceback.splitlines()) < 5, cell.traceback
    assert time.monotonic() - began < case.within
    assert not case.prints or cell.ranks_that_wrote(case.prints) == {0, 1}
    assert_clean_and_ready(notebook, before)


def test_a_rank_that_saves_on_an_interrupt_has_saved(notebook: Notebook, tmp_path: Path):
    notebook.check(f"""
    def train():
        try:
            print("ready")
            time.sleep(600)
        except KeyboardInterrupt:
            with open(f"{tmp_path}/{{os.environ['RANK']}}", "w") as file:
                file.write("all of it")
            raise
    """)
    cell = notebook.begin("notebook_launcher(train, num_processes=2)")
    notebook.read_until_ranks_wrote(cell, "ready", 2)
    notebook.interrupt()
    assert notebook.finish(cell).error == "KeyboardInterrupt"
    assert [(tmp_path / name).read_text() for name in "01"] == ["all of it"] * 2


@pytest.mark.clock
def test_waiting_for_ranks_after_an_interrupt_is_told(notebook: Notebook):
    notebook.check("""
    def save_slowly():
        try:
            print("ready")
            time.sleep(600)
        except KeyboardInterrupt:
            time.sleep(600)
    """)
    cell = notebook.begin("notebook_launcher(save_slowly, num_processes=2)")
    notebook.read_until_ranks_wrote(cell, "ready", 2)
    notebook.interrupt()
    notebook.read_until(cell, "interrupt again to kill them", timeout=GRACE)
    assert "ranks 0-1" in cell.stderr
    notebook.interrupt()
    assert notebook.finish(cell, timeout=2).error == "KeyboardInterrupt"


def test_an_interrupt_ends_all_attempts(notebook: Notebook):
    notebook.check("""
    def work():
        print("ready")
        time.sleep(600)
    """)
    cell = notebook.begin("notebook_launcher(work, num_processes=2, max_restarts=5)")
    notebook.read_until_ranks_wrote(cell, "ready", 2)
    notebook.interrupt()
    assert notebook.finish(cell).error == "KeyboardInterrupt"
    assert lines_by_rank(cell.stdout) == {0: ["ready"], 1: ["ready"]}


def test_an_interrupt_stops_the_flood_of_output_at_once(notebook: Notebook):
    before = files(notebook)
    notebook.check("""
    def flood():
        while True:
            print("x" * 100, flush=False)
    """)
    cell = notebook.begin("notebook_launcher(flood, num_processes=2)")
    notebook.read_until(cell, "xxx")
    notebook.interrupt()
    assert notebook.finish(cell, timeout=30).error == "KeyboardInterrupt"
    assert_clean_and_ready(notebook, before)


def test_an_interrupt_while_modules_are_imported_for_the_function(notebook: Notebook, tmp_path: Path):
    before = files(notebook)
    (tmp_path / "slow_to_import.py").write_text(
        'import os, time\nif "RANK" in os.environ:\n    print("importing", flush=True)\n    time.sleep(600)\n'
        "def work(): pass\n"
    )
    notebook.check(f"sys.path.insert(0, {str(tmp_path)!r})\nimport slow_to_import")
    cell = notebook.begin("notebook_launcher(slow_to_import.work, num_processes=2)")
    notebook.read_until_ranks_wrote(cell, "importing", 2)
    notebook.interrupt()
    assert notebook.finish(cell).error == "KeyboardInterrupt"
    assert_clean_and_ready(notebook, before)
    notebook.check("sys.path.pop(0)")


@pytest.mark.parametrize("step", ["launcher.resolve", "hardware.detect", "conflicts.notice"])
def test_an_interrupt_while_a_launch_is_planned_is_told_without_internal_frames(step: str, notebook: Notebook):
    owner, name = step.split(".")
    cell = notebook.run(f"""
    import os, signal
    from notebook_accel import hardware
    from notebook_accel.launch.driver import launcher
    from notebook_accel.launch.plan import conflicts
    planned = {step}
    def interrupted(*args, **options):
        {owner}.{name} = planned
        os.kill(os.getpid(), signal.SIGINT)
        return planned(*args, **options)
    {owner}.{name} = interrupted
    notebook_launcher(join, num_processes=2)
    """)
    assert cell.error == "KeyboardInterrupt"
    assert "the launch was interrupted before it started ranks" in cell.traceback
    assert "launcher.py" not in cell.traceback
    assert notebook.value("notebook_launcher(join, num_processes=2)") == [0, 1]


def test_the_sigint_handler_of_the_notebook_is_the_same_after_a_launch(notebook: Notebook):
    notebook.check("before = signal.getsignal(signal.SIGINT)\nnotebook_launcher(int, num_processes=1)")
    assert notebook.value("signal.getsignal(signal.SIGINT) is before")


def test_an_interrupt_while_the_server_starts(open_notebook: Callable[..., Notebook], tmp_path: Path):
    """The server is held where it is, however late the interrupt comes on a busy machine."""
    go = tmp_path / "go"
    notebook = open_notebook(env=OWN_SERVER)
    before = files(notebook)
    cell = notebook.begin(f"""
    {UNTRAINED}
    from notebook_accel import notebook_launcher
    import os, time
    while not os.path.exists({str(go)!r}):
        time.sleep(0.005)
    os.remove({str(go)!r})
    notebook_launcher(int, num_processes=2)
    """)

    def started() -> list[psutil.Process]:
        # Until it runs our program, the kernel waits for it.
        return [each for each in notebook.servers() if "launch.server.main" in each.cmdline()[-1]]

    wait_until(started)
    held = started()
    for each in held:
        each.suspend()
    go.touch()
    wait_until(lambda: not go.exists())
    notebook.interrupt()
    for each in held:
        each.resume()
    assert notebook.finish(cell, timeout=30).error == "KeyboardInterrupt"
    notebook.check(LIGHT)
    assert_clean_and_ready(notebook, before)


# Without torch in the kernel, which starts sooner.
LIGHT = f"""{UNTRAINED}
from notebook_accel import notebook_launcher
import os, signal, subprocess, time
"""
LIGHT += """

def join():
    import torch.distributed as dist

    dist.init_process_group("gloo")
    dist.barrier()
    return dist.get_rank()
"""
WORK = (
    LIGHT
    + """
def work():
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)
    join()
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    print("ready")
    time.sleep(600)
"""
)


def test_no_rank_outlives_a_kernel_that_is_restarted_or_shut_down(open_notebook: Callable[..., Notebook]):
    """Two kernels, one after the other."""
    notebook = open_notebook()
    before = files(notebook)
    for end_it in (notebook.restart, notebook.shut_down):
        notebook.check(WORK)
        cell = notebook.begin("job = notebook_launcher(work, num_processes=2, block=False)")
        notebook.read_until_ranks_wrote(cell, "ready", 2)
        running = notebook.pids()
        end_it()
        wait_until(lambda gone=running: not gone & notebook.pids(), GONE_WITHIN, "processes are left")
        wait_until(lambda: files(notebook) <= before, GONE_WITHIN, lambda: f"left: {files(notebook) - before}")
        if notebook.manager.has_kernel:
            notebook.check(LIGHT)
            assert_clean_and_ready(notebook, before)


def test_no_rank_outlives_a_kernel_that_is_killed(open_notebook: Callable[..., Notebook]):
    notebook = open_notebook()
    before = files(notebook)
    notebook.check(WORK)
    # A fork of the kernel holds open what the kernel held.
    pool = notebook.value("""
    import multiprocessing
    pool = multiprocessing.get_context("fork").Pool(1)
    [process.pid for process in pool._pool]
    """)
    cell = notebook.begin("notebook_launcher(work, num_processes=2)")
    notebook.read_until_ranks_wrote(cell, "ready", 2)
    os.kill(notebook.pid, signal.SIGKILL)
    wait_until(lambda: notebook.pids() <= set(pool), GONE_WITHIN, "processes are left")
    for pid in pool:
        with contextlib.suppress(ProcessLookupError):  # a worker of a pool notices sooner or later
            os.kill(pid, signal.SIGKILL)
    left = files(notebook) - before
    assert not [name for name in left if "sem.mp-" not in name], "the pool's own locks aside"
