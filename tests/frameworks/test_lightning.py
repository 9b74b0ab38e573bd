"""A Lightning `Trainer` on the ranks."""

from __future__ import annotations

import pytest

from tests.frameworks.conftest import Launch
from tests.live_notebook import Cell, Notebook

pytestmark = pytest.mark.usefixtures("defined")

TRAIN = """
import os
import torch
import lightning as L
from torch.utils.data import DataLoader, TensorDataset

class Model(L.LightningModule):
    def __init__(self, fails):
        super().__init__()
        self.layer, self.fails = torch.nn.Linear(8, 1), fails

    def loss(self, batch):
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.layer(inputs), targets)

    def training_step(self, batch, index):
        if self.fails and self.global_rank == 1 and index == 2:
            raise ValueError("no third step")
        loss = self.loss(batch)
        self.log("loss", loss, on_step=True, prog_bar=True)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", self.loss(batch), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

def train(batch, fails=False, strategy="ddp"):
    torch.manual_seed(0)
    inputs = torch.randn(64, 8)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    model = Model(fails)
    trainer = L.Trainer(
        accelerator="cpu", strategy=strategy, devices=int(os.environ["LOCAL_WORLD_SIZE"]), max_epochs=2, logger=False,
        enable_checkpointing=False, enable_model_summary=False, log_every_n_steps=1,
    )
    trainer.fit(model, DataLoader(data, batch), DataLoader(data, batch))
    return trainer.world_size, torch.cat([each.detach().flatten() for each in model.parameters()]).tolist()
"""
FAILING = "(8, True)"
"""The arguments of a launch that fails."""


def test_a_step_that_fails_is_the_error(failed: Cell) -> None:
    """Long: kernel and server import what is run."""
    assert failed.error == "RankError"
    assert failed.error_text.startswith("rank 1 of 2 raised ValueError: no third step"), failed.error_text


@pytest.mark.usefixtures("failed")
def test_two_ranks_of_the_next_launch_train_as_one_with_the_whole_batch(launch: Launch) -> None:
    both = launch("train, 8")
    (size, weights), again = both.values
    assert size == 2
    assert again == [2, weights]
    (((_, whole), (_, half)),) = launch("lambda: [train(16), train(8)]", size=1).values
    assert weights == pytest.approx(whole, abs=1e-5)
    assert weights != pytest.approx(half, abs=1e-3)
    assert "Epoch 1/1" in both.names[0]
    assert both.names[1] == []
    assert {"loss", "val_loss"} <= set(both.metrics[0])


def test_a_strategy_that_forks_ranks_of_its_own_is_refused(notebook: Notebook) -> None:
    for call in (
        "train, (8, False, 'ddp_notebook')",
        "lambda: L.Fabric(accelerator='cpu', strategy='ddp_notebook', devices=2).launch(print)",
    ):
        refused = notebook.run(f"notebook_launcher({call}, num_processes=2)")
        assert 'write strategy="ddp", devices=2' in refused.error_text
