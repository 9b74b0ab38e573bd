"""What a program gives on one device: plain torch, written from what the documents say.

The only thing taken from the ranks is an order that nobody has determined (`shuffle=True` without a generator).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, cycle, islice
from typing import Any

import torch
from torch import nn

from tests.train.equivalence.program import Program

Batches = list[list[int]]


@dataclass(frozen=True)
class Round:
    """The batches that the ranks have at the same time: together, one batch of the single device."""

    parts: Batches
    """By rank; empty where a rank has run out."""
    kept: int
    """How many of the samples are not there to fill the round."""

    @property
    def samples(self) -> list[int]:
        return list(chain(*self.parts))


@dataclass
class Expected:
    """What each rank should return."""

    seen: list[list[Batches]] = field(default_factory=list)
    """By rank and epoch, the batches."""
    rates: list[list[float]] = field(default_factory=list)
    """By rank, the learning rate after each batch."""
    losses: list[list[tuple[int, float]]] = field(default_factory=list)
    """By epoch, each sample once, with its error."""
    weights: dict[str, Any] = field(default_factory=dict)


class Illegal(Exception):
    """The ranks' order is not one that the documents allow."""


def expected(program: Program, definitions: dict[str, Any], seen: Sequence[Sequence[Batches]]) -> Expected:
    """What one device gives.

    Args:
        program: The program.
        definitions: Those of its script.
        seen: By rank and epoch, the batches of the ranks.

    Raises:
        Illegal: The order of the samples is wrong.
    """
    model = definitions["make_model"]()
    optimizer = definitions["make_optimizer"](model)
    loader = definitions["make_loader"]()
    has_scheduler = "make_scheduler" in definitions
    scheduler = definitions["make_scheduler"](optimizer, program.epochs * len(loader)) if has_scheduler else None
    schedule = _Schedule(scheduler, 1 if program.split_batches else program.ranks)
    data, ranks = loader.dataset, range(program.ranks)
    found = Expected([[] for _ in ranks], [[] for _ in ranks])
    count = 0
    for epoch in range(program.epochs):
        rounds = _rounds(program, _batches(program, loader, epoch, seen))
        for rank in ranks:
            found.seen[rank].append([each.parts[rank] for each in rounds if each.parts[rank]])
        found.losses.append([])
        for number, each in enumerate(rounds, 1):
            count += 1
            errors: list[float] = []
            for part in filter(None, each.parts):
                batch = [data[index] for index in part]
                outputs = model(torch.stack([sample["inputs"] for sample in batch]))[:, 0]
                wrong = (outputs - torch.stack([sample["target"] for sample in batch])).square()
                (wrong.mean() / program.ranks / program.accumulation).backward()
                errors += wrong.tolist()
            found.losses[-1] += list(zip(each.samples, errors, strict=True))[: each.kept]
            if count % program.accumulation == 0 or number == len(rounds):
                _clip(program, model)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            if number == len(rounds):
                count = 0
            for rank in ranks:
                if each.parts[rank]:
                    found.rates[rank].append(optimizer.param_groups[0]["lr"])
    found.weights = {name: each.tolist() for name, each in model.state_dict().items()}
    return found


class _Schedule:
    """A schedule that was written for one rank: it takes a step for each rank that has a batch."""

    def __init__(self, scheduler: Any, repeats: int) -> None:
        self._scheduler = scheduler
        self._left = getattr(scheduler, "total_steps", None) or 10**9
        self._repeats = repeats

    def step(self) -> None:
        for _ in range(min(self._repeats, self._left) if self._scheduler else 0):
            self._scheduler.step()
            self._left -= 1


def _clip(program: Program, model: nn.Module) -> None:
    if program.clip == "norm":
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    elif program.clip == "value":
        nn.utils.clip_grad_value_(model.parameters(), 0.01)


def _batches(program: Program, loader: Any, epoch: int, seen: Sequence[Sequence[Batches]]) -> Batches:
    """The batches of an epoch of the loader that nobody has prepared."""
    if program.order not in ("shuffled", "seedable"):
        return [batch["index"].tolist() for batch in loader]
    if program.order == "seedable":  # "depends only on the seed and the epoch"
        generator = torch.Generator().manual_seed(5 + epoch)
        order = torch.randperm(program.samples, generator=generator).tolist()
    else:
        order = _order(program, seen, epoch)
    batches = [order[start : start + program.batch_size] for start in range(0, len(order), program.batch_size)]
    return [each for each in batches if len(each) == program.batch_size or not program.drop_last]


def _order(program: Program, seen: Sequence[Sequence[Batches]], epoch: int) -> list[int]:
    """The order in which the ranks have read, filled up with what they have dropped."""
    rounds = [chain(*parts) for parts in _transposed([rank[epoch] for rank in seen])]
    order = list(chain(*rounds))[: program.samples]
    if len(set(order)) < len(order):
        raise Illegal(f"in epoch {epoch}, a shuffled order has a sample twice: {order}")
    return order + [index for index in range(program.samples) if index not in order]


def _transposed(by_rank: Sequence[Batches]) -> list[Batches]:
    return [[rank[number] for rank in by_rank if number < len(rank)] for number in range(max(map(len, by_rank)))]


def _rounds(program: Program, batches: Batches) -> list[Round]:
    """Which rank has which samples: "each rank takes every Nth batch", or its part of each."""
    ranks = program.ranks
    if ranks == 1:
        return [Round([batch], len(batch)) for batch in batches]
    per_round = 1 if program.split_batches else ranks
    full = program.batch_size * per_round
    rounds, first = [], list(chain(*batches[:per_round]))
    for start in range(0, len(batches), per_round):
        taken = batches[start : start + per_round]
        samples = list(chain(*taken))
        if len(samples) == full:
            size = full // ranks
            rounds.append(Round(_cut(samples, [size] * ranks), full))
        elif not program.drop_last:
            rounds.append(_last(program, samples, taken, first, full))
    return rounds


def _last(program: Program, samples: list[int], taken: Batches, first: list[int], full: int) -> Round:
    """The last round: "filled with repeated samples", unless batches need not be even."""
    ranks, count = program.ranks, len(samples)
    if program.even_batches:
        size = -(-count // ranks) if program.dispatch_batches else full // ranks  # rank 0 fills up only to equal parts
        filled = [*samples, *islice(cycle(first), size * ranks - count)]
        return Round(_cut(filled, [size] * ranks), count)
    if program.dispatch_batches:
        sizes = [count // ranks + (rank < count % ranks) for rank in range(ranks)]
    elif program.split_batches:
        sizes = [full // ranks] * ranks
    else:
        sizes = [len(batch) for batch in taken]
    return Round(_cut(samples, sizes + [0] * (ranks - len(sizes))), count)


def _cut(samples: list[int], sizes: Sequence[int]) -> Batches:
    rest = iter(samples)
    return [list(islice(rest, size)) for size in sizes]
