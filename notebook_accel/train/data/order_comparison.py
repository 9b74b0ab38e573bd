"""Compares, in the first epoch of a loader, what the ranks divide: each takes its share of one order of one data set.

A sampler that selects a rank's share itself, or that draws from a generator with another seed on each rank, makes this
silently wrong: some samples are read several times, and others never.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import warnings
import zlib
from collections.abc import Mapping
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from notebook_accel.train.data.samplers import index_sampler
from notebook_accel.train.ranks.store_comparison import StoreComparison
from notebook_accel.train.tensors import packing, pytree

_MOST = 64
"""How many indices, or elements of a data set, are compared."""
_SAMPLES = 4
"""How many samples of a stream are compared."""


class OrderComparison:
    """The comparison for one loader; it is made where the loader is prepared."""

    def __init__(self) -> None:
        self._ranks = StoreComparison("order")
        self._is_done = False

    def compare(self, found: Mapping[str, Any]) -> None:
        """Tells what this rank has found, the first time; warns if this is the last rank, and others differ."""
        if self._is_done:
            return
        self._is_done = True
        every = self._ranks.exchange(found)
        differing = [name for name in found if any(each.get(name) != every[0][name] for each in every)]
        if differing:
            self._warn(differing, every)

    def _warn(self, differing: list[str], every: list[dict[str, Any]]) -> None:
        details = "; ".join(f"{name}: {_texts(name, every)}" for name in differing)
        warnings.warn_explicit(
            "the ranks divide different samples: some are read several times, and others never. The loader was "
            f"prepared at {self._ranks.line}. What differs: {details}. Either its sampler or its data set selects this "
            "rank's share itself: let it yield the samples of all ranks, which prepare divides, or leave the loader "
            "out of prepare, and move its batches to accelerator.device. Or it draws from a generator whose seed "
            "differs between ranks: call set_seed(0) before, or give the sampler, or random_split, "
            "generator=torch.Generator().manual_seed(0)",
            UserWarning,
            *self._ranks.frame,
        )


def _texts(name: str, every: list[dict[str, Any]]) -> str:
    if isinstance(every[0][name], list):
        return ", ".join(f"{each[name][:4]} … on rank {rank}" for rank, each in enumerate(every[:2]))
    if name in ("samples", "batches", "share"):
        return ", ".join(f"{each[name]} on rank {rank}" for rank, each in enumerate(every[:4]))
    return "their contents"


def describe(dataset: Any, sampler: Any, first: Any) -> dict[str, Any]:
    """What has to be equal on all ranks.

    Args:
        dataset: The data set of the loader, undivided.
        sampler: What yields the batches of all ranks; `None` for a stream.
        first: The indices of the first round of batches; for a stream, a digest of its first samples, or `None`.
    """
    found: dict[str, Any] = {"samples": _length(dataset), "data": _data(dataset)}
    if sampler is None:
        return found | {"first samples": first}
    flat = [index if isinstance(index, int) else repr(index) for index in first[:_MOST]]
    return found | {"batches": _length(sampler), "first indices": flat}


def share(loader: DataLoader[Any]) -> str | None:
    """Which share of the samples a loader's data set or sampler selects by itself; `None` if it doesn't say so.

    `DistributedSampler` and the streams that `split_dataset_by_node` returns do:
    https://github.com/huggingface/datasets/issues/6623
    """
    order = index_sampler(loader)
    for each in (loader.dataset, getattr(loader.dataset, "_distributed", None), order, getattr(order, "sampler", None)):
        rank, size = getattr(each, "rank", None), getattr(each, "num_replicas", getattr(each, "world_size", None))
        if isinstance(rank, int) and isinstance(size, int) and size > 1:
            return f"{rank} of {size}"
    return None


def digest(samples: Any) -> int | None:
    """A number that follows from the contents of the first samples of a stream; `None` if it can't be computed."""
    try:
        return _digest(list(islice(samples, _SAMPLES)))
    except Exception:  # an object of the user's that can't be pickled
        return None


def _digest(data: Any) -> int:
    found = io.BytesIO()
    pickler = pickle.Pickler(found)
    pickler.fast = True  # otherwise, the result also depends on which of several equal objects are the same
    pickler.dump(pytree.recursively_apply(lambda leaf: (tuple(leaf.shape), str(leaf.dtype)), data))
    return packing.checksum(pytree.leaves(data), zlib.crc32(found.getvalue()), most=None)


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except Exception:  # it has no length, or the user's method fails
        return None


def _data(dataset: Any) -> Any:
    """What tells two data sets apart without reading samples of them: the first elements that they hold."""
    with contextlib.suppress(Exception):  # the user's own type may do anything
        if isinstance(dataset, Subset):
            return [int(index) for index in islice(dataset.indices, _MOST)]
        if isinstance(dataset, TensorDataset):
            return digest(tensor[:1] for tensor in dataset.tensors)
        if isinstance(dataset, (torch.Tensor, list, tuple)):
            return digest(dataset)
        if not isinstance(dataset, Dataset):  # of the `datasets` library, in which some rows are selected
            return dataset._indices.column(0)[:_MOST].to_pylist()
    return None
