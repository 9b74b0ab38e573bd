"""Handles samples that do not divide evenly among the ranks: drops repeated rows from metrics, allows uneven loops."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils.data import DataLoader

from notebook_accel.train.data.samplers import index_sampler
from notebook_accel.train.data.sharding import UNKNOWN, BatchSamplerShard, PremadeBatchShard
from notebook_accel.train.ranks import collectives
from notebook_accel.train.ranks.gradient_state import GradientState
from notebook_accel.train.ranks.logging import get_logger
from notebook_accel.train.ranks.sample_sharing import Ranks
from notebook_accel.train.tensors import tree

_logger = get_logger(__name__)


def gather_for_metrics(input_data: Any, use_gather_object: bool = False, ranks: Ranks | None = None) -> Any:
    """Gathers every rank's rows, without those that were repeated to pad the last batch.

    Args:
        input_data: A tensor, or a tree of tensors, with one row for each sample of this rank's batch; or any picklable
            object, such as a list with one entry for each sample.
        use_gather_object: Whether tensors are also gathered as objects, so that their shapes may differ.
        ranks: The ranks that get different samples; `None` for all ranks.

    Returns:
        The tree with the rows of all ranks in each tensor; for objects, a list.
    """
    ranks = ranks or collectives.everyone()
    is_object = use_gather_object or not tree.has_only_tensors(input_data)
    gathered = (
        collectives.gather_object_over(input_data, ranks) if is_object else collectives.gather_over(input_data, ranks)
    )
    loader = GradientState().active_dataloader
    if loader is None or not loader.end_of_dataloader or loader.num_processes == 1:
        return gathered
    remainder: int = loader.remainder
    if remainder == UNKNOWN:
        _logger.warning(
            "The last batch may contain repeated samples; their number is not known, since the dataset has no length. "
            "gather_for_metrics has returned them too; to avoid them, pass drop_last=True to the DataLoader."
        )
    if remainder <= 0:
        return gathered
    return gathered[:remainder] if is_object else tree.slice_tensors(gathered, slice(remainder))


@contextmanager
def overriding_even_batches(loaders: Iterable[DataLoader[Any]], even_batches: bool) -> Iterator[None]:
    """Sets, within the block, whether the loaders pad the last round of batches.

    Args:
        loaders: Prepared loaders. Those that cannot change it, because their dataset is iterable or because rank 0
            reads for all, are left as they are, with a warning.
        even_batches: Whether they pad it.
    """
    shards = [_shard(loader) for loader in loaders if getattr(loader, "num_processes", 1) > 1]
    if None in shards:
        warnings.warn(
            "overriding even_batches is only supported for map-style datasets that each rank reads from; the other "
            "data loaders are left as they are",
            UserWarning,
            stacklevel=4,
        )
    found = [shard for shard in shards if shard is not None]
    before = [shard.even_batches for shard in found]
    for shard in found:
        shard.even_batches = even_batches
    try:
        yield
    finally:
        for shard, was in zip(found, before, strict=True):
            shard.even_batches = was


def _shard(loader: DataLoader[Any]) -> BatchSamplerShard | None:
    sampler = index_sampler(getattr(loader, "base_dataloader", loader))
    if isinstance(sampler, PremadeBatchShard):
        return sampler.shard
    return sampler if isinstance(sampler, BatchSamplerShard) else None
