"""A training run that a machine of the cluster ends, because it shuts down."""

from __future__ import annotations

import re
from pathlib import Path

from tests.live_notebook import Cell, Notebook

TRAIN = """
def train(steps):
    import torch
    from notebook_accel import Accelerator

    accelerator = Accelerator()
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(2 * steps, 3)), batch_size=1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in accelerator.epochs(1):
        for (inputs,) in loader:
            accelerator.backward(model(inputs).square().sum())
            optimizer.step()
            optimizer.zero_grad()
            print("step", flush=True)
            if not os.path.exists(os.environ["NOTEBOOK_ACCEL_CHECKPOINT_DIR"] + "/quick"):
                time.sleep(0.1)
    return accelerator.num_processes

def launch(folder, steps=1000, **options):
    return notebook_launcher(train, (steps,), num_processes=2, checkpoint=folder, every="1h", **options)
"""
"""It takes long, and saves no checkpoint by itself. Each machine has one rank, which imports what training needs."""


def begin(notebook: Notebook, folder: Path, options: str = "") -> Cell:
    """A training run that has done a step."""
    notebook.check(TRAIN)
    cell = notebook.begin(f"launch({str(folder)!r}{options})")
    notebook.read_until(cell, "step", timeout=60)
    return cell


def check_ended(cell: Cell, folder: Path, by: str) -> None:
    """All ranks have ended after the same step, with a checkpoint, and the error says how to continue."""
    assert cell.error == "RankError", cell
    sentence = (
        rf"both ranks .*PreemptedError: (?:{by}) ended the training after step (\d+)\. .*make the same launch again"
    )
    found = re.search(sentence, cell.error_text)
    assert found, cell.error_text
    assert [each.name for each in folder.iterdir()] == [f"checkpoint_{found[1]}"]
