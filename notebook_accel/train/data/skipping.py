"""Reads a loader without some of its batches."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset, Sampler

from notebook_accel.train.data.samplers import index_sampler, replace_index_sampler


def read(
    loader: DataLoader[Any], skipped: int, start: int = 0, on_skipped: Callable[[], None] | None = None
) -> Iterator[Any]:
    """A loader's batches without `skipped` of them from `start` on; those of a map-style dataset are not even read.

    Args:
        loader: The loader.
        skipped: The number of batches to leave out.
        start: The index of the first of them.
        on_skipped: For a map-style dataset, called when the samples of the first batch are known, and not yet read.
    """
    if not skipped:
        return iter(loader)
    if isinstance(loader.dataset, IterableDataset):
        return without(iter(loader), start, start + skipped)
    return iter(leave_out(loader, start, start + skipped, on_skipped))


def leave_out(
    loader: DataLoader[Any], start: int, stop: int, on_skipped: Callable[[], None] | None = None
) -> DataLoader[Any]:
    """A loader of a map-style dataset without the batches from `start` to before `stop`."""
    new = duplicate(loader)
    top = index_sampler(loader)
    yields_batches = loader.batch_sampler is not None or isinstance(top, BatchSampler)
    kind = SkipBatchSampler if yields_batches else Skipping
    replace_index_sampler(new, kind(top, stop - start, start, on_skipped))
    return new


def duplicate(loader: DataLoader[Any]) -> DataLoader[Any]:
    """A copy of a loader of any class that can be changed without changing the original."""
    new = copy.copy(loader)
    new._iterator = None  # the workers belong to the original
    return new


class Skipping(Sampler[Any]):
    """A sampler that leaves some elements out; its other attributes are those of the wrapped one.

    Args:
        batch_sampler: The wrapped sampler.
        skip_batches: The number of elements that are left out.
        start: The index of the first of them.
        on_skipped: Called before the first element is yielded, after it was drawn.
    """

    def __init__(
        self,
        batch_sampler: Any,
        skip_batches: int = 0,
        start: int = 0,
        on_skipped: Callable[[], None] | None = None,
    ) -> None:
        self.batch_sampler = batch_sampler
        self.skip_batches = skip_batches
        self.start = start
        self.on_skipped = on_skipped

    def __iter__(self) -> Iterator[Any]:
        elements = without(iter(self.batch_sampler), self.start, self.start + self.skip_batches)
        return elements if self.on_skipped is None else _announced(elements, self.on_skipped)

    def __len__(self) -> int:
        length = self.total_length
        return min(length, self.start) + max(0, length - self.start - self.skip_batches)

    @property
    def total_length(self) -> int:
        """The number of elements before some are left out."""
        return len(self.batch_sampler)

    def __getattr__(self, name: str) -> Any:
        if name == "batch_sampler" or name.startswith("__"):  # the object is being unpickled
            raise AttributeError(name)
        return getattr(self.batch_sampler, name)


class SkipBatchSampler(Skipping, BatchSampler):
    """A batch sampler without the first batches of another; see `Skipping`."""


def _announced(elements: Iterator[Any], on_first: Callable[[], None]) -> Iterator[Any]:
    for first in elements:
        on_first()
        yield first
        break
    yield from elements


def without(elements: Iterator[Any], start: int, stop: int) -> Iterator[Any]:
    """The elements before `start`, and those from `stop` on."""
    return itertools.chain(itertools.islice(elements, start), itertools.islice(elements, stop - start, None))
