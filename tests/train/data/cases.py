"""What ranks do for the tests of data loaders, many cases to a launch."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
)

from notebook_accel.train.data.prepare import prepare_data_loader, skip_first_batches
from notebook_accel.train.ranks.seeds import set_seed
from notebook_accel.train.ranks.state import PartialState
from tests.train.data.loaders import ReadyBatches, SizedStream, Stream, numbers, read

Key = tuple[Any, ...]


class StreamOfBatches(IterableDataset):
    def __iter__(self) -> Any:
        return iter(torch.arange(12).reshape(3, 4))


def batches_as_samples(sampler: Any) -> DataLoader[Any]:
    return DataLoader(torch.arange(21), sampler=BatchSampler(sampler, 4, False), batch_size=None)


SHUFFLED = {
    "shuffle": lambda: numbers(21, shuffle=True),
    "generator": lambda: numbers(21, shuffle=True, generator=torch.Generator().manual_seed(3)),
    "with replacement": lambda: DataLoader(
        torch.arange(21), sampler=RandomSampler(range(21), replacement=True, num_samples=30), batch_size=4
    ),
    "weights": lambda: DataLoader(torch.arange(21), sampler=WeightedRandomSampler([1.0] * 21, 21), batch_size=4),
    "batch sampler": lambda: DataLoader(
        torch.arange(21), batch_sampler=BatchSampler(RandomSampler(range(21)), 4, drop_last=True)
    ),
    "sampler of batches": lambda: batches_as_samples(RandomSampler(range(21))),
}
STILL = {
    "in order": lambda: numbers(11),
    "without the last": lambda: numbers(11, drop_last=True),
    "one sample": lambda: numbers(1),
    "whole rounds": lambda: numbers(16),
    "whole round, short batch": lambda: numbers(14),
    "iterable": lambda: DataLoader(Stream(11), batch_size=4),
    "iterable of known length": lambda: DataLoader(SizedStream(11), batch_size=4),
    "iterable without the last": lambda: DataLoader(Stream(11), batch_size=4, drop_last=True),
    "workers": lambda: numbers(11, num_workers=1),
    "sampler of batches": lambda: batches_as_samples(SequentialSampler(range(21))),
}
READY = {
    "ready-made batches": lambda: DataLoader(ReadyBatches(3), batch_size=None),
    "iterable of ready-made batches": lambda: DataLoader(StreamOfBatches(), batch_size=None),
}
HOW_SHUFFLED = [{}, {"split_batches": True}, {"use_seedable_sampler": True}]
FLAGS = list(itertools.product([False, True], repeat=3))
"""dispatch_batches, split_batches, even_batches."""
MISFITS = {
    ("weights", "use_seedable_sampler"): "it leaves the sampler's order to each rank",
    ("sampler of batches", "use_seedable_sampler"): "it does not find the random sampler",
    ("sampler of batches", "split_batches"): "it refuses it",
    ("sampler of batches", "dispatch_batches"): "it refuses it",
    ("one sample", "dispatch_batches"): "it fails on rank 0, and hangs the others",
}
"""Where Accelerate does not follow its own rule."""


def is_possible(name: str, how: dict[str, Any], ranks: int) -> bool:
    """Whether so many ranks can share a loader in this way: a batch of 4 is not cut in three, nor a ready-made one."""
    if not how.get("split_batches"):
        return True
    return 4 % ranks == 0 and (name not in READY or bool(how.get("dispatch_batches")))


def is_compared(name: str, how: dict[str, Any], ranks: int) -> bool:
    """Whether Accelerate can be compared with.

    On one rank it is not asked, since importing it takes seconds; on three, its dispatching fails with `drop_last`.
    """
    if ranks == 1 or (ranks == 3 and how.get("dispatch_batches")) or not is_possible(name, how, ranks):
        return False
    return not any((name, option) in MISFITS for option, value in how.items() if value)


def options(flags: tuple[bool, ...]) -> dict[str, bool]:
    """The arguments that a row of `FLAGS` stands for."""
    return dict(zip(("dispatch_batches", "split_batches", "even_batches"), flags, strict=True))


def shuffled(
    key: str, how: dict[str, Any], by: str = "notebook-accel", seed_by_rank: bool = False
) -> list[list[list[int]]]:
    """Two epochs of a shuffled loader."""
    set_seed(5, device_specific=seed_by_rank)
    loader = _prepare(by, SHUFFLED[key](), rng_types=["generator"], **how)
    return [read(loader) for _ in range(2)]


def still(make: Any, how: dict[str, Any], skipped: int = 0) -> dict[str, Any]:
    """One epoch of a loader in order."""
    whole = _prepare("notebook-accel", make(), **how)
    loader = skip_first_batches(whole, skipped)
    batches = read(loader)
    try:
        length = len(loader)
    except TypeError:  # an iterable dataset without one
        length = None
    return {"batches": batches, "length": length, "remainder": loader.remainder}


def _prepare(by: str, plain: DataLoader[Any], **how: Any) -> Any:
    if by == "notebook-accel":
        return prepare_data_loader(plain, put_on_device=True, **how)
    from accelerate import Accelerator
    from accelerate.data_loader import prepare_data_loader as prepare

    Accelerator(cpu=True)  # what it logs is refused without one
    state = PartialState()
    place = {"num_processes": state.num_processes, "process_index": state.process_index}
    return prepare(plain, put_on_device=True, device=torch.device("cpu"), **place, **how)


def everything() -> dict[Key, Any]:
    """All cases, on this rank."""
    ranks = PartialState().num_processes
    found: dict[Key, Any] = {}
    for name in SHUFFLED:
        for how in HOW_SHUFFLED:
            if not is_possible(name, how, ranks):
                continue
            key = ("shuffled", name, *how)
            found[key] = shuffled(name, how)
            if is_compared(name, how, ranks):
                found[("accelerate", *key)] = shuffled(name, how, "Accelerate")
    for how in ({}, {"use_seedable_sampler": True}):
        found[("seeds of their own", *how)] = shuffled("shuffle", how, seed_by_rank=True)
    for name, make in (STILL | READY).items():
        for flags in FLAGS:
            how = options(flags)
            if not is_possible(name, how, ranks):
                continue
            for skipped in range(3):
                found[(name, *flags, skipped)] = still(make, how, skipped)
            if how["even_batches"] and name in STILL and is_compared(name, how, ranks):
                found[("accelerate", name, *flags)] = read(_prepare("Accelerate", make(), **how))
    return found
