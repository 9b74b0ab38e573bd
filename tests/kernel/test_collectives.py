"""The last collectives of ranks, as a notebook asks for them, recorded by torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live_notebook import Notebook

WORK = """
from torch import nn

def train(path):
    rank = join()
    model = nn.parallel.DistributedDataParallel(nn.Linear(256, 256))
    for _ in range(60):
        model(torch.ones(4, 256)).sum().backward()
        dist.broadcast(torch.zeros(3, dtype=torch.int64), 0)
    if rank == 0:
        work = dist.all_reduce(torch.ones(8), async_op=True)
    print("trained")
    wait_for(path)
    if rank:
        dist.all_reduce(torch.ones(8))

def disagree():
    rank = join()
    dist.barrier()
    if rank == 1:
        dist.all_reduce(torch.ones(2**20))
    else:
        dist.broadcast(torch.ones(2**20), 1)
        dist.broadcast(torch.ones(2**20), 1)
"""


@pytest.fixture
def prepared(notebook: Notebook) -> Notebook:
    """A notebook with these functions, in a cell of their own."""
    notebook.check(WORK)
    return notebook


def test_the_table_has_the_last_collectives_of_each_rank(prepared: Notebook, tmp_path: Path) -> None:
    notebook, go = prepared, tmp_path / "go"
    cell = notebook.check(f"job = notebook_launcher(train, ({str(go)!r},), num_processes=2, block=False)")
    notebook.read_until_ranks_wrote(cell, "trained", 2)
    notebook.check("found = job.collectives(); found")
    assert notebook.value("type(found).__name__, [*found.columns]") == (
        "DataFrame",
        ["rank", "group", "number", "operation", "shapes", "bytes", "began", "seconds", "done"],
    )
    assert notebook.value("found.groupby('rank').size().to_dict()") == {0: 100, 1: 100}
    last, *_ = notebook.value("found[found['rank'] == 0][::-1].to_dict('records')[:1]")
    assert (last["operation"], last["shapes"], last["bytes"], last["done"]) == ("all_reduce", "float[8]", 32, False)
    assert last["group"] == "default_pg"
    before = notebook.value("found[found['rank'] == 1].iloc[-1].drop('seconds').to_dict()")
    assert (before["operation"], before["shapes"], before["bytes"]) == ("broadcast", "long[3]", 24)
    assert before["number"] == last["number"] - 1
    assert before["done"]
    gradients = notebook.value("sorted(set(found[found.operation == 'all_reduce'].bytes))")
    assert gradients == [32, 4 * (256 * 256 + 256)], "DDP's own are there too"
    assert (
        notebook.value("[bool(each.began.is_monotonic_increasing) for _, each in found.groupby('rank')]") == [True] * 2
    )
    assert notebook.value("bool(found.began.between(0, job.seconds).all())")
    assert notebook.value("[*set(job.collectives(rank=1)['rank'])]") == [1]
    assert "has no rank 7: its ranks are 0 to 1" in notebook.run("job.collectives(7)").error_text
    go.touch()
    notebook.check("job.result(20)")
    assert "so its ranks can't be asked for their collectives" in notebook.run("job.collectives()").error_text


def test_a_stall_names_the_ranks_that_are_in_different_collectives(prepared: Notebook) -> None:
    text = prepared.value(
        "from notebook_accel.launch.job.location import explain\n"
        "job = notebook_launcher(disagree, num_processes=3, block=False, stall_after=0.2)\n"
        "deadline = time.monotonic() + 20\n"
        "while job.stalled is None and time.monotonic() < deadline: time.sleep(0.01)\n"
        "text = explain(job)\n"
        "job.cancel(); job.wait(20)\n"
        "text"
    )
    assert "rank 1 is in all_reduce #" in text
    assert " of 4 MB, the others in broadcast #" in text
