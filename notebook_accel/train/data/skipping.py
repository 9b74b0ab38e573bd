"""Reads a loader without some of its batches."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, Sampler

from notebook_accel.train.data.samplers import index_sampler, replace_index_sampler


def read(loader: DataLoader[Any], skipped: int, start: int = 0) -> Iterator[Any]:
    """A loader's batches without `skipped` of them from `start` on; those of a map-style dataset are not even read."""
    if not skipped:
        return iter(loader)
    if isinstance(loader.dataset, IterableDataset):
        return without(iter(loader), start, start + skipped)
    return iter(leave_out(loader, start, start + skipped))


def leave_out(loader: DataLoader[Any], start: int, stop: int) -> DataLoader[Any]:
    """A loader of a map-style dataset without the batches from `start` to before `stop`."""
    new = duplicate(loader)
    replace_index_sampler(new, Skipping(index_sampler(loader), start, stop))
    return new


def duplicate(loader: DataLoader[Any]) -> DataLoader[Any]:
    """A copy of a loader of any class that can be changed without changing the original."""
    new = copy.copy(loader)
    new._iterator = None  # the workers belong to the original
    return new


class Skipping(Sampler[Any]):
    """A sampler, or a batch sampler, that leaves some elements out; its other attributes are those of the wrapped one.

    Args:
        whole: The wrapped sampler.
        start: The index of the first element that is left out.
        stop: The index after the last element that is left out.
    """

    def __init__(self, whole: Any, start: int, stop: int) -> None:
        self.whole = whole
        self.start = start
        self.stop = stop

    def __iter__(self) -> Iterator[Any]:
        return without(iter(self.whole), self.start, self.stop)

    def __len__(self) -> int:
        length = len(self.whole)
        return min(length, self.start) + max(0, length - self.stop)

    def __getattr__(self, name: str) -> Any:
        if name == "whole" or name.startswith("__"):  # the object is being unpickled
            raise AttributeError(name)
        return getattr(self.whole, name)


def without(elements: Iterator[Any], start: int, stop: int) -> Iterator[Any]:
    """The elements before `start`, and those from `stop` on."""
    return itertools.chain(itertools.islice(elements, start), itertools.islice(elements, stop - start, None))
