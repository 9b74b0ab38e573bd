"""Handles samples that do not divide evenly among the ranks: drops repeated rows from metrics, allows uneven loops."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch.utils.data import DataLoader

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.data.iterable_shard import IterableDatasetShard
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


def check_accumulation(state: GradientState, counted: int) -> None:
    """Refuses an accumulation that ranks with fewer batches would end at another batch than the others.

    Args:
        state: Its loader is the one whose first batch is about to be counted.
        counted: How many batches were counted before.

    Raises:
        ConfigurationError: The gradients of the ranks would not be averaged at the same batches, or may not be.
    """
    loader = state.active_dataloader
    if state.num_steps == 1 or loader is None or loader.num_processes == 1 or _is_even(loader):
        return
    fewest = _fewest_batches(loader)
    if fewest == UNKNOWN:
        problem = "the number of samples is unknown, and some ranks may have fewer batches than others, which"
    elif fewest is not None and ((counted + fewest) % state.num_steps or not state.sync_with_dataloader):
        problem = f"some ranks have only {fewest} of {fewest + 1} batches, so they"
    else:
        return
    raise ConfigurationError(
        f"{problem} would not end an accumulation over {state.num_steps} batches when the others do, and "
        "join_uneven_inputs can't make up for that: leave out even_batches=False, pass drop_last=True to the "
        "DataLoader, or don't accumulate"
    )


def _is_even(loader: Any) -> bool:
    """Whether the last round is padded or dropped."""
    base = loader.base_dataloader
    return bool(_chooser(loader).even_batches or base.drop_last or getattr(index_sampler(base), "drop_last", False))


def _chooser(loader: Any) -> Any:
    """What chooses the ranks' shares: the loader itself if rank 0 reads for all."""
    dataset = loader.base_dataloader.dataset
    return dataset if isinstance(dataset, IterableDatasetShard) else _shard(loader) or loader


def _fewest_batches(loader: Any) -> int | None:
    """The batches of the ranks that have one less than others; `None` if there are none, -1 if that is unknown."""
    ranks = loader.num_processes
    try:
        full = loader.total_batch_size
        samples = loader.sample_count
        samples = loader.total_dataset_length if samples is None else samples
    except (TypeError, ConfigurationError):
        full, samples = ranks, getattr(index_sampler(loader.base_dataloader), "total_length", None)
    if samples is None:
        return UNKNOWN
    rounds, left = divmod(samples, full)
    most = ranks - 1 if _chooser(loader) is loader else full - full // ranks  # with more than these, each rank has one
    return int(rounds) if 0 < left <= most else None


@contextmanager
def catching_up(optimizers: Sequence[Any], schedulers: Sequence[Any]) -> Iterator[None]:
    """Gives ranks that run out of batches in the block the states of those that step on, as DDP does with the weights.

    Args:
        optimizers: Prepared optimizers.
        schedulers: Prepared schedulers.
    """
    counts = [0] * len(optimizers)

    def count(number: int) -> None:
        counts[number] += 1

    hooks = [
        each.optimizer.register_step_post_hook(lambda *_, number=number: count(number))
        for number, each in enumerate(optimizers)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    if not optimizers:
        return
    by_rank = collectives.gather_object([counts])
    for number, optimizer in enumerate(optimizers):
        steps = [rank[number] for rank in by_rank]
        if len(set(steps)) == 1:
            continue
        behind = [optimizer, *(each for each in schedulers if optimizer in each.optimizers)]
        states = [each.state_dict() for each in behind]
        collectives.broadcast_object_list(states, from_process=steps.index(max(steps)))
        if counts[number] < max(steps):
            for each, state in zip(behind, states, strict=True):
                each.load_state_dict(state)


def _shard(loader: DataLoader[Any]) -> BatchSamplerShard | None:
    sampler = index_sampler(getattr(loader, "base_dataloader", loader))
    if isinstance(sampler, PremadeBatchShard):
        return sampler.shard
    return sampler if isinstance(sampler, BatchSamplerShard) else None
