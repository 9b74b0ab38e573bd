"""One rank and two ranks end in the same weights, and so do Accelerate and we.

The two ranks' global batches follow from the documented rule: the samples in order, and then again from the first
until every rank has a full last batch. One rank is given just these batches.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import accelerate
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import Accelerator, AcceleratorState, FullyShardedDataParallelPlugin, GradientState
from tests.train.conftest import Ranks, launch

GLOBAL_BATCH, EVEN, UNEVEN, EPOCHS, RANKS = 8, 48, 43, 2, 2
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Case:
    """One combination."""

    strategy: str
    accumulation: int
    split: bool
    even: bool
    clip: bool

    def __str__(self) -> str:
        how = [self.strategy, f"accumulate {self.accumulation}", "split" if self.split else "whole"]
        return ", ".join([*how, "even" if self.even else "uneven", "clip" if self.clip else "free"])

    @property
    def samples(self) -> int:
        return EVEN if self.even else UNEVEN

    @property
    def batch_size(self) -> int:
        """What the user of two ranks gives."""
        return GLOBAL_BATCH if self.split else GLOBAL_BATCH // RANKS

    @property
    def global_batches(self) -> list[list[int]]:
        count = -(-self.samples // GLOBAL_BATCH) * GLOBAL_BATCH
        stream = list(itertools.islice(itertools.cycle(range(self.samples)), count))
        return [stream[start : start + GLOBAL_BATCH] for start in range(0, count, GLOBAL_BATCH)]


CASES = [
    Case(*values) for values in itertools.product(("ddp", "fsdp"), (1, 4), (True, False), (True, False), (True, False))
]
Weights = list[list[float]]


def dataset(samples: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(samples, 6, generator=generator)
    return TensorDataset(inputs, torch.sin(inputs.sum(1, keepdim=True)))


def train(accelerator: Any, loader: Iterable[Any], clip: bool) -> tuple[Weights, list[float]]:
    """The user's function, the same for Accelerate and us; returns the final weights, and each batch's loss."""
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for _ in range(EPOCHS):
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(inputs), targets)
                accelerator.backward(loss)
                if clip and accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.item())
    state = accelerator.get_state_dict(model)
    return [tensor.flatten().tolist() for tensor in state.values()], losses


def ours(case: Case) -> Accelerator:
    GradientState._reset_state()
    AcceleratorState._reset_state()
    return Accelerator(
        gradient_accumulation_steps=case.accumulation,
        split_batches=case.split,
        fsdp_plugin=FullyShardedDataParallelPlugin() if case.strategy == "fsdp" else None,
    )


def accelerates(case: Case) -> Any:
    accelerate.state.GradientState._reset_state()
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    config = accelerate.DataLoaderConfiguration(split_batches=case.split)
    return accelerate.Accelerator(cpu=True, gradient_accumulation_steps=case.accumulation, dataloader_config=config)


def run(make: Callable[[Case], Any], cases: Sequence[Case]) -> list[tuple[Weights, list[float]]]:
    """On each of two ranks."""
    torch.set_num_threads(1)
    found = []
    for case in cases:
        loader = DataLoader(dataset(case.samples), batch_size=case.batch_size)
        found.append(train(make(case), loader, case.clip))
    return found


def on_one_rank(make: Callable[[Case], Any], case: Case) -> tuple[Weights, list[float]]:
    return train(make(case), DataLoader(dataset(case.samples), batch_sampler=case.global_batches), case.clip)


@pytest.fixture(scope="module")
def two_ranks() -> dict[Case, tuple[Weights, list[float]]]:
    """What rank 0 of two has got for each case; all in one launch."""
    return dict(zip(CASES, launch(run, ours, CASES)[0], strict=True))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_rank_and_two_end_in_the_same_weights(
    case: Case, two_ranks: dict[Case, tuple[Weights, list[float]]]
) -> None:
    expected, _ = on_one_rank(ours, Case("ddp", case.accumulation, case.split, case.even, case.clip))
    found, _ = two_ranks[case]
    for mine, theirs in zip(found, expected, strict=True):
        assert torch.tensor(mine) == pytest.approx(torch.tensor(theirs), abs=TOLERANCE, rel=0)


@pytest.fixture(scope="module")
def accelerate_on_two_ranks() -> dict[Case, tuple[Weights, list[float]]]:
    cases = [case for case in CASES if case.strategy == "ddp"]
    return dict(zip(cases, launch(run, accelerates, cases)[0], strict=True))


@pytest.mark.parametrize("case", [case for case in CASES if case.strategy == "ddp"], ids=str)
def test_accelerate_and_we_agree_on_two_ranks(
    case: Case,
    two_ranks: dict[Case, tuple[Weights, list[float]]],
    accelerate_on_two_ranks: dict[Case, tuple[Weights, list[float]]],
) -> None:
    assert two_ranks[case] == accelerate_on_two_ranks[case]


@pytest.mark.parametrize("case", [case for case in CASES if case.strategy == "ddp"], ids=str)
def test_accelerate_and_we_lose_the_same_step_by_step_on_one_rank(case: Case) -> None:
    def found(make: Callable[[Case], Any]) -> tuple[Weights, list[float]]:
        return train(make(case), DataLoader(dataset(case.samples), batch_size=GLOBAL_BATCH), case.clip)

    assert found(ours) == found(accelerates)


def ranks_with_fewer_batches() -> Weights:
    """Rank 1 runs out of batches first, and stands by."""
    accelerator = Accelerator()
    torch.manual_seed(2)
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    with accelerator.join_uneven_inputs([model]):
        for number in range(4 - accelerator.process_index):
            loss = model(torch.full((2, 6), float(number))).mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    with torch.no_grad(), accelerator.no_sync(model), accelerator.join_uneven_inputs([model]):
        for _ in range(2 - accelerator.process_index):  # it is evaluated on more batches on rank 0
            model(torch.ones(2, 6))
    return [tensor.flatten().tolist() for tensor in accelerator.get_state_dict(model).values()]


def test_ranks_that_run_out_of_batches_stand_by(ranks: Ranks) -> None:
    first, second = ranks(ranks_with_fewer_batches)
    assert first == second
