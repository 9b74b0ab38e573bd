"""A training function that was written for the peer runs with only its import lines changed, and finds the same."""

import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.train.conftest import Ranks

SCRIPT = """
import os

import torch
from accelerate import Accelerator, DataLoaderConfiguration, DistributedType
from accelerate.utils import (
    DistributedDataParallelKwargs,
    GradientAccumulationPlugin,
    ProjectConfiguration,
    broadcast_object_list,
    find_executable_batch_size,
    gather_object,
    set_seed,
)
from sklearn.datasets import load_digits
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset


def digits():
    data = load_digits()
    inputs = torch.tensor(data.data[:330], dtype=torch.float32) / 16
    targets = torch.tensor(data.target[:330])
    return TensorDataset(inputs[:250], targets[:250]), TensorDataset(inputs[250:], targets[250:])


def training_function(folder, mixed_precision):
    accelerator = Accelerator(
        cpu=True,
        mixed_precision=mixed_precision,
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=2),
        project_config=ProjectConfiguration(folder, automatic_checkpoint_naming=True, total_limit=2),
        kwargs_handlers=[DistributedDataParallelKwargs(bucket_cap_mb=1)],
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True, data_seed=7),
    )
    assert accelerator.distributed_type in (DistributedType.NO, DistributedType.MULTI_CPU)
    set_seed(3)
    with accelerator.main_process_first():
        train, test = digits()

    @find_executable_batch_size(starting_batch_size=16)
    def loop(batch_size):
        accelerator.free_memory()
        model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        train_loader = DataLoader(train, shuffle=True, batch_size=batch_size)
        test_loader = DataLoader(test, batch_size=24)
        scheduler = OneCycleLR(optimizer, max_lr=0.02, epochs=3, steps_per_epoch=len(train_loader))
        model, optimizer, train_loader, test_loader, scheduler = accelerator.prepare(
            model, optimizer, train_loader, test_loader, scheduler
        )
        found = []
        for epoch in range(3):
            model.train()
            for step, (inputs, targets) in enumerate(train_loader):
                with accelerator.accumulate(model):
                    loss = torch.nn.functional.cross_entropy(model(inputs), targets)
                    accelerator.backward(loss)
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
            model.eval()
            right, seen = 0, 0
            for inputs, targets in test_loader:
                with torch.no_grad():
                    predictions = model(inputs).argmax(-1)
                predictions, targets = accelerator.gather_for_metrics((predictions, targets))
                right += (predictions == targets).sum().item()
                seen += len(targets)
            mean = accelerator.reduce(loss.detach(), reduction="mean").item()
            found.append((right, seen, mean, scheduler.get_last_lr()[0]))
            accelerator.log({"accuracy": right / seen}, step=epoch)
            accelerator.save_state()
        accelerator.wait_for_everyone()
        kept = sorted(os.listdir(os.path.join(folder, "checkpoints")))
        accelerator.load_state(os.path.join(folder, "checkpoints", kept[0]))
        accelerator.save_model(model, os.path.join(folder, "model"))
        accelerator.wait_for_everyone()
        return found, kept, sorted(os.listdir(os.path.join(folder, "model")))

    found = loop()
    names = gather_object([f"rank {accelerator.process_index}"])
    first = broadcast_object_list([accelerator.process_index])
    accelerator.end_training()
    return found, names, first
"""


def run(source: str, folder: str, mixed_precision: str) -> Any:
    """Runs the script's function on this rank."""
    names: dict[str, Any] = {"__name__": "script"}
    exec(compile(source, "script", "exec"), names)
    return names["training_function"](folder, mixed_precision)


def ported(source: str) -> str:
    """One word for another, in the import lines."""
    lines = source.splitlines()
    return "\n".join(
        line.replace("accelerate", "notebook_accel", 1) if line.startswith("from accelerate") else line
        for line in lines
    )


@pytest.mark.parametrize("mixed_precision", ["no", "bf16"])
@pytest.mark.parametrize("size", [1, 2])
def test_only_the_import_lines_change(size: int, mixed_precision: str, ranks: Ranks, tmp_path: Path) -> None:
    source = textwrap.dedent(SCRIPT)
    assert ported(source).count("notebook_accel") == 2
    theirs = ranks(run, source, str(tmp_path / "theirs"), mixed_precision, size=size)
    ours = ranks(run, ported(source), str(tmp_path / "ours"), mixed_precision, size=size)
    assert ours == theirs
