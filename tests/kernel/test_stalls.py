"""Waits, stalls and stacks of real ranks, as a notebook sees them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.live_notebook import Notebook

SETUP = """
import ctypes
from notebook_accel.launch.job.location import explain

def until(condition, what="it has not come true", within=20):
    deadline = time.monotonic() + within
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: {job.ranks}, {job.stalled}")
        time.sleep(0.01)
    return found

def where(rank):
    return job.ranks[rank].phase.value, job.ranks[rank].detail
"""


@pytest.fixture
def prepared(notebook: Notebook) -> Notebook:
    notebook.check(SETUP)
    return notebook


def start(notebook: Notebook, body: str, folder: Path, *, size: int = 2, options: str = "stall_after=0.2") -> None:
    """Starts a job whose ranks have joined; `go_on(name)` in the body waits for a file that `let` makes."""
    lines = "\n".join("    " + line for line in body.strip().splitlines())
    notebook.check(
        f"def work(folder={str(folder)!r}):\n"
        "    rank = join()\n"
        "    go_on = lambda name: wait_for(f'{folder}/{name}')\n"
        f"{lines}\n"
        f"def let(name): open({str(folder)!r} + '/' + name, 'w').close()\n"
        f"job = notebook_launcher(work, num_processes={size}, block=False, {options})"
    )


COLLECTIVES = {
    "all_reduce": "dist.all_reduce(torch.ones(2))",
    "barrier": "dist.barrier()",
    "all_gather_object": "dist.all_gather_object([None, None], {})",
    "monitored_barrier": "dist.monitored_barrier()",
    "work.wait": "work = dist.all_reduce(torch.ones(2), async_op=True); work.wait()",
    "DistributedDataParallel": "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))",
    "backward": "loss = model(torch.ones(2)).sum(); rank == 1 and go_on('backward'); loss.backward()",
}


def test_a_rank_that_sits_in_a_collective_waits(prepared: Notebook, tmp_path: Path) -> None:
    # Rank 1 comes to each only when rank 0 has been seen to wait in it.
    lines = [
        call if name == "backward" else f"rank == 1 and go_on({name!r}); {call}" for name, call in COLLECTIVES.items()
    ]
    start(prepared, "\n".join(lines), tmp_path, options="stall_after=None")
    found = prepared.value(f"""
    found = []
    for name in {list(COLLECTIVES)!r}:
        phase, detail = until(lambda: where(0)[1].startswith(name + " at ") and where(0), name)
        found.append((phase, detail.partition(" at ")[0], int(detail.rpartition(" ")[2]), where(1)))
        let(name)
        until(lambda: where(0)[0] != "waiting" or not where(0)[1].startswith(name + " at "), "gone on")
    found
    """)
    assert found == [("waiting", name, line, ("running", "")) for line, name in enumerate(COLLECTIVES, start=4)]
    assert prepared.value("job.result(timeout=20), job.stalled, where(0)") == (None, None, ("done", ""))


def test_a_rank_that_spins_while_its_collective_is_queued_waits_for_that(prepared: Notebook, tmp_path: Path) -> None:
    # As in `loss.item()`, while the device waits for another rank: one call that keeps the processor busy.
    body = """
from itertools import repeat
work = dist.all_reduce(torch.ones(1), async_op=True) if rank == 0 else None
rank == 0 and any(map(os.access, repeat(f'{folder}/rank 1'), repeat(os.F_OK)))
rank == 1 and go_on('rank 1')
dist.all_reduce(torch.ones(1)) if rank == 1 else work.wait()
"""
    start(prepared, body, tmp_path)
    name = prepared.value("until(lambda: where(0)[0] == 'waiting' and where(0)[1])")
    assert name.startswith("all_reduce at In[")
    assert name.endswith(" line 6")
    prepared.check("let('rank 1'); job.result(timeout=20)")


def test_a_loop_of_collectives_is_no_wait(prepared: Notebook, tmp_path: Path) -> None:
    start(
        prepared,
        "while not os.path.exists(folder + '/end'):\n    dist.all_reduce(torch.ones(2))\nlet_end = 1",
        tmp_path,
    )
    seen = prepared.value("""
    seen, deadline = set(), time.monotonic() + 1
    while time.monotonic() < deadline:
        seen |= {where(0)[0], where(1)[0]}
        time.sleep(0.01)
    job.cancel(); job.wait(10)
    sorted(seen - {"starting", "idle", "loading"}), job.stalled
    """)
    assert seen == (["running"], None)


def test_a_rank_that_the_others_wait_for_is_named_with_its_place(prepared: Notebook, tmp_path: Path) -> None:
    start(
        prepared,
        "if rank == 1:\n    go_on('rank 1')\n"
        "dist.all_reduce(torch.ones(1))\n"
        "if rank == 0:\n    go_on('end')\n"
        "dist.barrier()",
        tmp_path,
        size=3,
    )
    text = prepared.value("until(lambda: explain(job))")
    name = prepared.value("where(0)[1].rpartition(' line')[0].rpartition(' ')[2]")
    waiting = rf"no progress for [0-9.]+ s: ranks 0,2 wait in all_reduce at {re.escape(name)} line 6; rank 1 is in "
    assert re.match(waiting, text), text
    shown = prepared.check("job.show()")
    prepared.read_until(shown, "ranks 0,2 wait in all_reduce")
    assert "stalled" in shown.bundles[0]["text/html"]
    gone = prepared.value("let('rank 1'); until(lambda: job.stalled is None); explain(job)")
    assert gone == ""
    prepared.check("let('end'); job.result(timeout=20)")


def test_ranks_in_different_collectives_wait_for_ever(prepared: Notebook, tmp_path: Path) -> None:
    start(prepared, "if rank == 0:\n    dist.all_reduce(torch.ones(1))\nelse:\n    dist.barrier()", tmp_path)
    text = prepared.value("until(lambda: explain(job))").partition(": ")[2]
    assert text.startswith("rank 0 waits in all_reduce at In[")
    assert "; rank 1 waits in barrier at In[" in text
    assert ": they wait for each other forever" in text
    if prepared.value("hasattr(torch._C._distributed_c10d, '_dump_fr_trace_json')"):
        assert re.search(r"; rank 0 is in all_reduce #(\d+) of 4 B, rank 1 in barrier #\1$", text)
    # Neither may hear of the other's end.
    kill = "for number in (signal.SIGSTOP, signal.SIGKILL):\n    for state in job.ranks: os.kill(state.pid, number)"
    assert prepared.value(f"{kill}\njob.wait(60) and explain(job)[:15]") == "no progress for"


def test_ranks_that_compute_for_long_have_not_stalled(prepared: Notebook, tmp_path: Path) -> None:
    start(prepared, "x = 1\nwhile not os.path.exists(folder + '/end'):\n    x = x * 3 % 1000003", tmp_path)
    seen = prepared.value("""
    until(lambda: where(0)[0] == where(1)[0] == "running")
    seen, deadline = set(), time.monotonic() + 1
    while time.monotonic() < deadline:
        seen |= {where(0)[0], where(1)[0], job.stalled}
        time.sleep(0.01)
    let("end"); job.result(timeout=20)
    seen
    """)
    assert seen == {"running", None}


def test_a_job_tells_its_stacks(prepared: Notebook, tmp_path: Path) -> None:
    body = """
def helper():
    go_on('end')
threading.Thread(target=lambda: wait_for(folder + '/end'), name='beside', daemon=True).start()
helper()
"""
    start(prepared, body, tmp_path)
    text = prepared.value("""
    until(lambda: where(0)[0] == where(1)[0] == "running")
    until(lambda: "in helper" in (text := repr(job.stacks())) and text.count("in beside:") == 2 and text)
    """)
    assert re.search(r"rank 0 is in (time\.sleep|os\.path\.exists) at In\[", text)
    assert "-->    5         go_on('end')" in text
    assert "notebook_accel/" not in text
    assert prepared.value("sorted(job.stacks().threads), let('end'), job.result(timeout=20)") == ([0, 1], None, None)
    assert prepared.value("repr(job.stacks())") == "work() has ended (done), so its ranks have no stacks"


def test_a_rank_in_c_code_that_lets_no_python_run_tells_its_stack_undisturbed(
    prepared: Notebook, tmp_path: Path
) -> None:
    # poll() is not restarted by the system when a signal comes: it would return -1 early.
    start(prepared, "if rank == 1:\n    return ctypes.PyDLL(None).poll(None, 0, 3000)\ngo_on('end')", tmp_path)
    text = prepared.value("""
    until(lambda: where(0)[0] == where(1)[0] == "running")
    until(lambda: "rank 1 is at In[" in (text := repr(job.stacks())) and "in wait_for" in text and text)
    """)
    assert "(`return ctypes.PyDLL(None).poll(None, 0, 3000)`)" in text
    assert re.search(r"rank 0 is in (time\.sleep|os\.path\.exists) at In\[", text)
    assert prepared.value("let('end'); job.result(timeout=20)") == [None, 0]


def test_stacks_of_a_busy_rank_may_be_asked_for_often(prepared: Notebook, tmp_path: Path) -> None:
    body = """
def deep(n):
    return sum(x for x in range(20)) + (deep(n - 1) if n else 0)
while not os.path.exists(folder + '/end'):
    deep(100)
"""
    start(prepared, body, tmp_path)
    found = prepared.value("""
    until(lambda: where(0)[0] == where(1)[0] == "running")
    found = [sorted(job.stacks(timeout=20).threads) for _ in range(8)]
    let("end"); job.result(timeout=20)
    found
    """)
    assert found == [[0, 1]] * 8
