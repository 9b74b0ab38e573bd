"""A training run in a loop over `Accelerator.epochs` goes on from its checkpoints, and ends in the same bits."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

from notebook_accel import Accelerator, DataLoaderConfiguration, FullyShardedDataParallelPlugin, RankError, set_seed
from notebook_accel.events import training_step
from tests.train.conftest import Cases, asked_for, launch

pytestmark = pytest.mark.early
EPOCHS = 3


@dataclass(frozen=True)
class Case:
    """One way to train, in epochs of 6 batches on each rank, and when it stops."""

    size: int = 2
    every: str = "5"
    """Steps, or a time, from one checkpoint to the next. Writing them takes most of a run."""
    stops_after: int = 11
    """How many batches the interrupted run trains."""
    accumulation: int = 1
    fsdp: str = ""
    """`state_dict_type` of FSDP2; empty: DDP."""
    loading: dict[str, Any] = field(default_factory=dict)
    iterable: bool = False
    workers: int = 0
    persistent: bool = False
    """Whether the loader keeps its workers."""
    order: str = ""
    """What draws the order of the samples, in a sampler of the user's own; empty: torch's sampler."""
    augments: bool = False
    """Whether the dataset draws random numbers for each sample."""
    validates: bool = False
    """Whether there is a shuffled loader for validation, at the start of each epoch and within it."""
    passes: int = 1
    """How often the loader is iterated in an epoch."""
    zipped: bool = False
    """Whether two loaders are trained on at once."""
    kept: bool = False
    """Whether the last batch is the last that an epoch takes from its iterator, which therefore doesn't end."""


class Samples(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __init__(self, count: int, augments: bool) -> None:
        generator = torch.Generator().manual_seed(1)
        self.inputs = torch.randn(count, 6, generator=generator)
        self.targets = torch.randint(0, 3, (count,), generator=generator)
        self.augments = augments

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = self.inputs[index]
        if self.augments:
            inputs = inputs + torch.rand(6) + random.random() + np.random.rand()
        return inputs.float(), self.targets[index]


class Stream(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    """Samples in order, or taken at random from a buffer."""

    def __init__(self, count: int, augments: bool, order: str, seed: int) -> None:
        self.samples = Samples(count, augments)
        self.order = order
        if order == "own":
            self.generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        indices = list(range(len(self.samples)))
        while indices:
            number = 0
            if self.order == "own":
                number = int(torch.randint(min(8, len(indices)), (), generator=self.generator))
            elif self.order:
                number = random.randrange(min(8, len(indices)))
            yield self.samples[indices.pop(number)]


class Order(Sampler[int]):
    """Shuffles with global random numbers, or with generators of its own."""

    def __init__(self, count: int, kind: str, seed: int) -> None:
        self.count = count
        self.kind = kind
        self.python = random.Random(seed)
        self.numpy = np.random.default_rng(seed)
        self.legacy = np.random.RandomState(seed)
        self.torch = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        indices = list(range(self.count))
        if self.kind == "global":
            random.shuffle(indices)
            return iter([indices[each] for each in np.random.permutation(self.count)])
        self.python.shuffle(indices)
        first, second = self.numpy.permutation(self.count), self.legacy.permutation(self.count)
        return iter([indices[first[second[each]]] for each in torch.randperm(self.count, generator=self.torch)])


class Counter:
    """An object of the user's own."""

    def __init__(self) -> None:
        self.batches = 0

    def state_dict(self) -> dict[str, int]:
        return {"batches": self.batches}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.batches = state["batches"]


def train(
    case: Case, folder: str, stops_after: int | None = None, seed: int = 7, victim: int | None = None
) -> dict[str, Any]:
    """Trains to the end, or stops on the way; with a victim, that rank is killed there, the first time."""
    os.environ["NOTEBOOK_ACCEL_CHECKPOINT_DIR"] = folder
    os.environ["NOTEBOOK_ACCEL_CHECKPOINT_EVERY"] = case.every
    set_seed(seed)
    accelerator = Accelerator(
        gradient_accumulation_steps=case.accumulation,
        dataloader_config=DataLoaderConfiguration(**case.loading),
        fsdp_plugin=FullyShardedDataParallelPlugin(state_dict_type=case.fsdp) if case.fsdp else None,
    )
    torch.manual_seed(accelerator.process_index + seed)  # dropout differs on each rank
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
    count = 24 * case.size
    how: dict[str, Any] = {"shuffle": True}
    dataset: Any = Samples(count, case.augments)
    if case.iterable:
        how, dataset = {}, Stream(count, case.augments, case.order, seed)
    elif case.order:
        how = {"sampler": Order(count, case.order, seed)}
    loader = DataLoader(dataset, batch_size=4, num_workers=case.workers, persistent_workers=case.persistent, **how)
    second = DataLoader(Samples(count, augments=False), batch_size=4, shuffle=True)
    model, optimizer, loader, second, scheduler = accelerator.prepare(model, optimizer, loader, second, scheduler)
    counter = Counter()
    accelerator.register_for_checkpointing(counter)
    trained = 0
    for epoch in accelerator.epochs(EPOCHS):
        if case.validates:
            validate(model, second)
        model.train()
        for _ in range(case.passes):
            iterator = iter(loader)
            taken = taken_from(iterator, loader) if case.kept else iterator
            batches = zip(taken, second, strict=True) if case.zipped else ((each, each) for each in taken)
            for (inputs, targets), (others, _) in batches:
                with accelerator.accumulate(model):
                    noise = random.random() * 0.01 + np.random.rand() * 0.01 + others * 0.1
                    loss = nn.functional.cross_entropy(model(inputs + noise), targets)
                    accelerator.backward(loss)
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
                trained += 1
                counter.batches += 1
                if case.validates and counter.batches % 5 == 0:
                    validate(model, second)
                    model.train()
                if trained == stops_after and victim is None:
                    return stopped(trained)
                if trained == stops_after and accelerator.process_index == victim and first_attempt():
                    os.kill(os.getpid(), signal.SIGKILL)
        counter.batches += 100 * epoch
    weights = accelerator.get_state_dict(model)
    return {
        "weights": {name: tensor.clone() for name, tensor in weights.items()},
        "batches": counter.batches,
        "trained": trained,
        "rate": scheduler.get_last_lr(),
        "newest": max((int(path.name[11:]) for path in Path(folder).glob("checkpoint_*") if folder), default=None),
        "next": (random.random(), np.random.rand(), torch.rand(1).item()),
    }


def taken_from(iterator: Iterator[Any], loader: Any) -> Iterator[Any]:
    while True:
        yield next(iterator)
        if loader.end_of_dataloader:
            return


def stopped(trained: int) -> dict[str, Any]:
    for thread in threading.enumerate():
        if thread.name == "checkpoint":
            thread.join()
    return {"trained": trained}


def first_attempt() -> bool:
    return os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"


def validate(model: nn.Module, loader: Any) -> None:
    model.eval()
    with torch.no_grad():
        for inputs, _ in loader:
            model(inputs)


CASES = {
    "one rank": Case(size=1),
    "one rank, by time": Case(size=1, every="0.001 s"),
    "one rank, after an epoch": Case(size=1, every="6", stops_after=8),
    "one rank, after each step": Case(size=1, every="1", augments=True),
    "DDP": Case(),
    "DDP, by time": Case(every="0.001 s"),
    "DDP, accumulation": Case(accumulation=3, every="2"),
    "DDP, augmented": Case(augments=True, every="4"),
    "DDP, augmented, by time": Case(augments=True, every="0.001 s"),
    "DDP, validated": Case(validates=True),
    "DDP, two passes": Case(passes=2, every="8", stops_after=16),
    "DDP, two loaders at once": Case(zipped=True),
    "DDP, kept iterator": Case(kept=True),
    "DDP, kept iterator, after an epoch": Case(kept=True, every="6", stops_after=14),
    "DDP, split batches": Case(loading={"split_batches": True}),
    "DDP, dispatched batches": Case(loading={"dispatch_batches": True}),
    "DDP, seedable sampler": Case(loading={"use_seedable_sampler": True}),
    "DDP, iterable": Case(iterable=True),
    "DDP, iterable, shuffles with its own generator": Case(iterable=True, order="own"),
    "DDP, iterable, shuffles in a worker": Case(iterable=True, order="global", augments=True, workers=1),
    "one rank, iterable, shuffles in a worker": Case(size=1, iterable=True, order="global", augments=True, workers=1),
    "DDP, stateful loader": Case(loading={"use_stateful_dataloader": True}),
    "DDP, stateful loader, persistent workers": Case(
        loading={"use_stateful_dataloader": True}, workers=1, persistent=True, stops_after=8, every="6"
    ),
    "DDP, workers": Case(workers=1),
    "DDP, persistent workers": Case(workers=1, persistent=True),
    "DDP, persistent workers, dispatched": Case(workers=1, persistent=True, loading={"dispatch_batches": True}),
    "DDP, sampler with global generators": Case(order="global"),
    "DDP, sampler with its own generators": Case(order="own"),
    "FSDP2": Case(fsdp="SHARDED_STATE_DICT"),
    "FSDP2, whole": Case(fsdp="FULL_STATE_DICT"),
}
AT_NIGHT = {
    "one rank, by time",
    "one rank, after an epoch",
    "DDP, augmented",
    "DDP, augmented, by time",
    "DDP, two passes",
    "DDP, kept iterator, after an epoch",
    "DDP, split batches",
    "DDP, seedable sampler",
    "DDP, iterable",
    "DDP, stateful loader",
    "one rank, iterable, shuffles in a worker",
    "DDP, workers",
    "DDP, persistent workers, dispatched",
    "DDP, sampler with global generators",
}
"""Further cases of what others also see: by when a checkpoint is saved, and by what draws the order."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[tuple[str, int], Cases]:
    """By what they are, and the number of ranks: whole runs, those that stop, and those that go on from there."""
    folder = tmp_path_factory.mktemp("runs")

    def cases(size: int, *options: Any, saves: bool) -> Cases:
        return Cases(
            {
                name: (train, case, str(folder / str(index)) if saves else "", *(option(case) for option in options))
                for index, (name, case) in enumerate(CASES.items())
                if case.size == size
            },
            size=size,
            asked=asked_for(request, "name"),
        )

    found = {}
    for size in (1, 2):
        found["whole", size] = cases(size, saves=False)
        found["stopped", size] = cases(size, lambda case: case.stops_after, saves=True)
        found["resumed", size] = cases(size, lambda _: None, lambda _: 107, saves=True)
    return found


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly if name in AT_NIGHT else ()) for name in CASES]
)
def test_a_training_that_stopped_goes_on_and_ends_in_the_same_bits(
    name: str, runs: dict[tuple[str, int], Cases]
) -> None:
    """The first one launches all cases of its number of ranks, three times."""
    size = CASES[name].size
    whole, stopped, resumed = (runs[what, size][name] for what in ("whole", "stopped", "resumed"))
    assert len(whole) == size
    for rank, (one, cut, other) in enumerate(zip(whole, stopped, resumed, strict=True)):
        assert other["trained"] < one["trained"], "nothing was left out"
        assert other["trained"] + cut["trained"] >= one["trained"], "something was left out that was not done"
        assert other["batches"] == one["batches"]
        assert other["rate"] == one["rate"]
        assert other["newest"] == -(-6 // CASES[name].accumulation) * one["trained"] // 6, "steps were miscounted"
        assert other["next"] == one["next"], f"the random states of rank {rank} differ"
        for key, tensor in one["weights"].items():
            assert torch.equal(other["weights"][key], tensor), f"{key} differs on rank {rank}"


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_is_killed_costs_only_what_was_not_saved(
    victim: int, tmp_path: Path, runs: dict[tuple[str, int], Cases]
) -> None:
    found = launch(train, CASES["DDP"], str(tmp_path), 11, 7, victim, max_restarts=1)
    for one, other in zip(runs["whole", 2]["DDP"], found, strict=True):
        assert other["trained"] < one["trained"]
        for key, tensor in one["weights"].items():
            assert torch.equal(other["weights"][key], tensor)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint_10", "checkpoint_15", "checkpoint_18"]


def test_another_number_of_ranks_goes_on_where_the_others_were(tmp_path: Path) -> None:
    case = Case(loading={"use_seedable_sampler": True, "data_seed": 3}, stops_after=9, every="4")
    launch(train, case, str(tmp_path), case.stops_after)
    (found,) = launch(train, Case(**{**vars(case), "size": 2}), str(tmp_path), None, size=1)
    assert found["trained"] == 36 - 2 * 8  # each batch of one rank is half of a round of two
    assert found["batches"] == 8 + found["trained"] + 100 * (1 + 2)


def steps_outside(folder: str, stops_after: int | None) -> int:
    outside: list[Any] = []
    hook = register_optimizer_step_post_hook(lambda *_: outside.append(_) if training_step() is None else None)
    train(CASES["FSDP2"], folder, stops_after)
    hook.remove()
    return len(outside)


def test_no_step_of_a_resumed_training_seems_to_be_outside_of_its_loop(tmp_path: Path) -> None:
    """A launch would say that it doesn't save the training; torch makes a step to load the shards of an optimizer."""
    assert launch(steps_outside, str(tmp_path), 6) == [0, 0]
    assert launch(steps_outside, str(tmp_path), None) == [0, 0]


def refused(folder: str, resume: str) -> None:
    os.environ["NOTEBOOK_ACCEL_CHECKPOINT_RESUME"] = resume
    train(Case(size=1), folder)


def test_the_checkpoints_of_another_run_are_refused_if_they_are_not_to_be_resumed(tmp_path: Path) -> None:
    launch(train, Case(size=1), str(tmp_path), 6, size=1)
    with pytest.raises(RankError, match="has the checkpoints of an earlier run, such as checkpoint_5"):
        launch(refused, str(tmp_path), "false", size=1)
