"""A run that is resumed from a checkpoint ends in the same bits as one that was never interrupted."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from notebook_accel.train.accelerator.accelerator import Accelerator
from notebook_accel.train.options.fsdp import FullyShardedDataParallelPlugin
from notebook_accel.train.options.plugins import DataLoaderConfiguration
from notebook_accel.train.ranks.seeds import set_seed
from tests.train.conftest import Cases, asked_for

pytestmark = pytest.mark.early


@dataclass(frozen=True)
class Case:
    """One way to train, and where to save: in the second of three epochs, after so many of its batches."""

    size: int = 2
    saved_after: int = 4
    accumulation: int = 2
    fsdp: bool = False
    samples: int = 46
    loading: dict[str, Any] = field(default_factory=dict)
    iterable: bool = False
    workers: int = 0
    at_end: bool = False
    """Whether the batch after which it is saved is the epoch's last."""


class Rows(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    def __init__(self, samples: int) -> None:
        self.inputs, self.targets = data(samples)

    def __iter__(self) -> Any:
        return zip(self.inputs, self.targets, strict=True)


def data(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(samples, 6, generator=generator), torch.randint(0, 3, (samples,), generator=generator)


class Counter:
    """An object of the user's own."""

    def __init__(self) -> None:
        self.batches = 0

    def state_dict(self) -> dict[str, int]:
        return {"batches": self.batches}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.batches = state["batches"]


def train(case: Case, folder: str, resume: bool) -> dict[str, Any]:
    """Trains, saving on the way; or starts from there, with nothing else the same."""
    set_seed(7 + 100 * resume)
    accelerator = Accelerator(
        gradient_accumulation_steps=case.accumulation,
        dataloader_config=DataLoaderConfiguration(**case.loading),
        fsdp_plugin=FullyShardedDataParallelPlugin() if case.fsdp else None,
    )
    torch.manual_seed(accelerator.process_index + 100 * resume)  # dropout differs on each rank
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
    dataset: Any = Rows(case.samples) if case.iterable else TensorDataset(*data(case.samples))
    loader = DataLoader(dataset, batch_size=4, shuffle=None if case.iterable else True, num_workers=case.workers)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    counter = Counter()
    accelerator.register_for_checkpointing(counter)
    first, done = 0, 0
    if resume:
        accelerator.load_state(folder)
        first, done = (2, 0) if case.at_end else (1, case.saved_after)
    for epoch in range(first, 3):
        skips = done and not case.loading.get("use_stateful_dataloader")
        batches = accelerator.skip_first_batches(loader, done) if skips else loader
        for number, (inputs, targets) in enumerate(batches, start=done + 1):
            with accelerator.accumulate(model):
                noise = random.random() * 0.01 + np.random.rand() * 0.01
                loss = nn.functional.cross_entropy(model(inputs + noise), targets)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            counter.batches += 1
            if not resume and (epoch, number) == (1, case.saved_after):
                accelerator.save_state(folder)
        done = 0
    weights = accelerator.get_state_dict(model)
    return {
        "weights": {name: tensor.clone() for name, tensor in weights.items()},
        "batches": counter.batches,
        "rate": scheduler.get_last_lr(),
        "next": (random.random(), np.random.rand(), torch.rand(1).item()),
    }


CASES = {
    "one rank": Case(size=1),
    "DDP": Case(),
    "DDP, without accumulation": Case(accumulation=1, saved_after=3),
    "DDP, in the middle of an accumulation": Case(saved_after=3),
    "one rank, in the middle of an accumulation": Case(size=1, saved_after=3, accumulation=4),
    "DDP, after the last batch of an epoch": Case(saved_after=6, at_end=True),
    "DDP, split batches": Case(loading={"split_batches": True}),
    "DDP, dispatched batches": Case(loading={"dispatch_batches": True}),
    "DDP, seedable sampler": Case(loading={"use_seedable_sampler": True}),
    "DDP, iterable": Case(iterable=True, samples=48),
    "DDP, stateful loader": Case(loading={"use_stateful_dataloader": True}),
    "DDP, workers": Case(workers=1),
    "FSDP2": Case(fsdp=True),
}
AT_NIGHT = {
    "DDP, without accumulation",
    "one rank, in the middle of an accumulation",
    "DDP, split batches",
    "DDP, seedable sampler",
    "DDP, iterable",
    "DDP, workers",
}
"""Loaders that `test_epochs.py` also resumes, and what another case also sees."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[tuple[bool, int], Cases]:
    """Whole runs, and those that other processes resume, by whether they are resumed and the number of ranks."""
    folder = tmp_path_factory.mktemp("checkpoints")
    return {
        (resume, size): Cases(
            {
                name: (train, case, str(folder / str(index)), resume)
                for index, (name, case) in enumerate(CASES.items())
                if case.size == size
            },
            size=size,
            asked=asked_for(request, "name"),
        )
        for resume in (False, True)
        for size in (1, 2)
    }


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly if name in AT_NIGHT else ()) for name in CASES]
)
def test_a_resumed_run_ends_in_the_same_bits(name: str, runs: dict[tuple[bool, int], Cases]) -> None:
    """The first of each number of ranks is long: one launch trains all cases."""
    size = CASES[name].size
    whole, resumed = runs[False, size][name], runs[True, size][name]
    assert len(whole) == size
    for rank, (one, other) in enumerate(zip(whole, resumed, strict=True)):
        assert other["batches"] == one["batches"]
        assert other["rate"] == one["rate"]
        assert other["next"] == one["next"], f"the random states of rank {rank} differ"
        for key, tensor in one["weights"].items():
            assert torch.equal(other["weights"][key], tensor), f"{key} differs on rank {rank}"
