"""How a function scales, measured with real ranks."""

from __future__ import annotations

from tests.live_notebook import Notebook

WORK = """
from notebook_accel import Accelerator, compare, scaling

def train(batches):
    accelerator = Accelerator(cpu=True)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32 * batches, 64)), batch_size=16)
    model = torch.nn.Linear(64, 8)
    model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.01), data)
    for step, (inputs,) in enumerate(data):
        loss = model(inputs).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.log({"loss": loss.item()}, step=step)

def train_alone(batches):
    if os.environ["WORLD_SIZE"] == "2":
        raise ValueError("only alone")
    train(batches)

def fail():
    raise ValueError("it fails")
"""


def test_a_function_runs_with_each_number_of_ranks(notebook: Notebook) -> None:
    notebook.check(WORK)
    shown = notebook.check("curve = scaling(train, [1, 2], (20,)); curve")
    assert shown.value is not None
    head, one, two = shown.value.splitlines()
    assert head == "train() by the number of ranks"
    assert one.split()[:2] == ["1", "rank"]
    assert one.endswith("samples per second, 1.00×, 100% efficiency")
    assert two.split()[:2] == ["2", "ranks"]
    assert notebook.value("[(ranks, len(job.ranks), job.status.value) for ranks, job in curve.jobs.items()]") == [
        (1, 1, "done"),
        (2, 2, "done"),
    ]
    found = notebook.check("compare(curve.jobs[1], curve.jobs[2])")
    assert found.value is not None
    assert "on 2 ranks instead of 1: " in found.value.splitlines()[0]
    assert "loss at step 19" in found.value

    assert notebook.run("scaling(fail, [1])").error == "RankError"
    assert "give different whole numbers above 0" in notebook.run("scaling(train, [1, 1])").error_text
    assert "scaling() sets block itself" in notebook.run("scaling(train, [1], block=True)").error_text


def test_a_run_that_fails_leaves_what_was_measured_before(notebook: Notebook) -> None:
    notebook.check(WORK)
    cell = notebook.run("scaling(train_alone, [1, 2, 3], (20,))")
    assert "only alone" in cell.error_text
    head, one, left = cell.stderr.splitlines()[-3:]
    assert head == "train_alone() by the number of ranks"
    assert one.endswith("samples per second, 1.00×, 100% efficiency")
    assert left == "not measured, because of the error below: 2, 3"
