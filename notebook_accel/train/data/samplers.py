"""A random sampler that depends on a seed and the epoch only, and access to the samplers of a loader."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sized
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler


class SeedableRandomSampler(RandomSampler):
    """A random sampler whose order in an epoch depends only on `seed + epoch`, on any number of ranks.

    Args:
        data_source: The dataset.
        replacement: Whether samples are drawn with replacement.
        num_samples: The number of samples in an epoch; by default all.
        generator: The generator, which is reseeded for each epoch.
        data_seed: The seed; by default torch's initial seed, which `set_seed` sets.
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: torch.Generator | None = None,
        data_seed: int | None = None,
    ) -> None:
        super().__init__(data_source, replacement, num_samples, generator or torch.Generator())
        self.initial_seed = torch.initial_seed() if data_seed is None else data_seed
        self.epoch = 0

    @classmethod
    def like(cls, sampler: RandomSampler, data_seed: int) -> SeedableRandomSampler:
        """A seedable sampler that draws as many samples from the same source."""
        return cls(sampler.data_source, sampler.replacement, sampler._num_samples, sampler.generator, data_seed)

    def __iter__(self) -> Iterator[int]:
        self.generator.manual_seed(self.initial_seed + self.epoch)
        yield from super().__iter__()
        self.set_epoch(self.epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration."""
        self.epoch = epoch


def index_sampler(loader: DataLoader[Any]) -> Any:
    """The sampler that a loader iterates over: a batch sampler, which yields lists, or a sampler of single indices."""
    return loader.sampler if loader.batch_sampler is None else loader.batch_sampler


def replace_index_sampler(loader: DataLoader[Any], sampler: Any) -> None:
    """Replaces that sampler in a private copy of a loader; `DataLoader.__setattr__` forbids it, hence `__dict__`."""
    loader.__dict__["sampler" if loader.batch_sampler is None else "batch_sampler"] = sampler


def get_sampler(loader: DataLoader[Any]) -> Any:
    """The sampler of single indices in a loader, or the batch sampler if that wraps none."""
    top = index_sampler(loader)
    return getattr(top, "sampler", top)


def replace_sampler(loader: DataLoader[Any], sampler: Any) -> None:
    """Replaces the sampler of single indices in a private copy of a loader."""
    top = index_sampler(loader)
    if isinstance(top, BatchSampler):
        batches = copy.copy(top)
        batches.sampler = sampler
        replace_index_sampler(loader, batches)
    if not isinstance(loader.sampler, BatchSampler):
        loader.__dict__["sampler"] = sampler
