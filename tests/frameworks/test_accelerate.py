"""The peer's own `Accelerator` on the ranks."""

from __future__ import annotations

import pytest

from tests.frameworks.conftest import Launch
from tests.live_notebook import Cell

pytestmark = pytest.mark.usefixtures("defined")

TRAIN = """
import accelerate
import torch
from torch.utils.data import DataLoader, TensorDataset
from tqdm.auto import tqdm

def train(batch, fails=False):
    torch.manual_seed(0)
    accelerator = accelerate.Accelerator()
    inputs = torch.randn(64, 8)
    model = torch.nn.Linear(8, 1)
    model, optimizer, loader = accelerator.prepare(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch),
    )
    for step, (inputs, targets) in enumerate(tqdm(loader, desc="steps")):
        if fails and step == 2 and accelerator.process_index == 1:
            raise ValueError("no third step")
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.mse_loss(model(inputs), targets))
        optimizer.step()
    weights = torch.cat([each.detach().flatten() for each in model.parameters()]).tolist()
    return accelerator.num_processes, accelerator.device.type, weights
"""
FAILING = "(8, True)"
"""The arguments of a launch that fails."""


def test_a_rank_that_fails_is_the_error(failed: Cell) -> None:
    """Long: kernel and server import what is run."""
    assert failed.error == "RankError"
    assert failed.error_text.startswith("rank 1 of 2 raised ValueError: no third step"), failed.error_text


@pytest.mark.usefixtures("failed")
def test_two_ranks_of_the_next_launch_train_as_one_with_the_whole_batch(launch: Launch) -> None:
    both = launch("train, 8")
    (size, device, weights), again = both.values
    assert (size, device) == (2, "cpu")
    assert again == [2, "cpu", weights]
    (((_, _, whole), (_, _, half)),) = launch("lambda: [train(16), train(8)]", size=1).values
    assert weights == pytest.approx(whole, abs=1e-5)
    assert weights != pytest.approx(half, abs=1e-3)
    assert both.bars == [[["steps", 4, 4, True]]] * 2


def test_settings_of_the_launch_reach_it(launch: Launch) -> None:
    assert launch("lambda: accelerate.Accelerator().mixed_precision", mixed_precision="bf16").values == ["bf16"] * 2
