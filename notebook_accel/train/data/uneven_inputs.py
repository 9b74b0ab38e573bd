"""Handles samples that do not divide evenly among the ranks: drops repeated rows from metrics, allows uneven loops."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.data import DataLoader

from notebook_accel.errors import ConfigurationError, DistributedOperationException
from notebook_accel.train.data.iterable_shard import IterableDatasetShard
from notebook_accel.train.data.samplers import index_sampler
from notebook_accel.train.data.sharding import UNKNOWN, shard_of
from notebook_accel.train.ranks import collectives
from notebook_accel.train.ranks.gradient_state import GradientState
from notebook_accel.train.ranks.logging import get_logger
from notebook_accel.train.ranks.mesh import Ranks
from notebook_accel.train.ranks.state import PartialState
from notebook_accel.train.tensors import pytree, rows
from notebook_accel.train.tensors.rows import Reading, UnevenRowsError

_logger = get_logger(__name__)


def gather_for_metrics(input_data: Any, use_gather_object: bool = False, ranks: Ranks | None = None) -> Any:
    """Gathers every rank's rows, without those that were repeated to pad the last batch.

    Args:
        input_data: A tensor, an array, or a list or tuple, with an entry for each sample of this rank's batch; or a
            tree of these. Values without an entry for each sample must be tensors without dimensions.
        use_gather_object: Whether the entries are gathered as objects, so that the shapes of tensors may differ. The
            entries of a list may then be anything, and tensors become lists.
        ranks: The ranks that get different samples; `None` for all ranks.

    Returns:
        The same tree, with the rows of all ranks in each tensor, array, or list.

    Raises:
        ConfigurationError: Something can't be gathered, or hasn't an entry for each sample of the last batch.
        DistributedOperationException: The shapes, the types, or the structures differ between ranks.
    """
    if not PartialState().use_distributed:
        return input_data
    ranks = ranks or collectives.everyone()
    state = GradientState()
    state.turn += 1
    loaders = [loader for loader in state.loaders_in_use if loader.num_processes > 1]
    if not use_gather_object and pytree.has_only_tensors(input_data):
        reading = Reading()  # as in `gather`, a list of tensors groups them
        gathered = collectives.gather_over(input_data, ranks)
    else:
        reading = _read_objects(input_data, loaders[-1].rows if loaders else None, use_gather_object)
        gathered = _gather_objects(input_data, reading, ranks)
    return _without_repetitions(input_data, gathered, reading, loaders)


def _without_repetitions(own: Any, gathered: Any, reading: Reading, loaders: Sequence[Any]) -> Any:
    """What was gathered, without the rows that the last batches of loaders repeat."""
    ended = [loader for loader in loaders if loader.end_of_dataloader and loader.remainder]
    if any(loader.remainder == UNKNOWN for loader in ended):
        _logger.warning(
            "The last batch may contain repeated samples, but their number isn't known, so gather_for_metrics has "
            "returned them too. To avoid them, pass drop_last=True to the DataLoader."
        )
    cut = [loader for loader in ended if loader.remainder > 0]
    columns = list(reading.columns(own))
    if not cut or not columns:
        return gathered
    fitting = [loader for loader in cut if loader.rows in (None, len(columns[0][1]))]
    if not fitting and len(cut) < len(loaders):
        return gathered  # these are the samples of the loaders that have not ended
    loader = min(fitting or cut, key=lambda each: each.remainder)
    if len({loader.remainder if loader in cut else None for loader in loaders}) > 1:
        _logger.warning_once(
            "Several loaders are read together, and the last batch of one of them repeats samples: gather_for_metrics "
            "has dropped these rows. For values that don't depend on that batch, use gather."
        )
    for path, column in columns:
        if loader.rows not in (None, len(column)):
            raise ConfigurationError(
                "gather_for_metrics has to drop the samples that were repeated to fill the last batch, which has "
                f"{loader.rows} samples on this rank, but input_data{path} has {len(column)} rows: pass one row for "
                "each sample, such as loss.repeat(len(batch)), or use gather, which drops nothing"
            )
    return rows.cut(own, gathered, reading, loader.remainder)


@dataclass(frozen=True)
class _MetricReading(Reading):
    """Refuses a list that could have an entry for each sample as well as group lists that do."""

    def is_column(self, value: Any) -> bool:
        if self.lists_are_columns or not isinstance(value, list) or not value:
            return super().is_column(value)
        has_entries = self.rows is None or len(value) == self.rows
        if not any(map(rows.may_have_rows, rows.types_of(value))):  # texts, numbers, or records such as tuples
            return has_entries or not all(map(self.fits, value))
        if has_entries and (self.rows is None or all(map(self.fits, value))):
            raise ConfigurationError(
                f"gather_for_metrics can't tell whether a list of {len(value)} lists has an entry for each sample, or "
                "groups lists that do: pass a tuple or a dict to group them, or use_gather_object=True for entries "
                "that are lists"
            )
        return has_entries or not all(map(self.fits, value))


def _read_objects(data: Any, size: int | None, lists_are_columns: bool) -> Reading:
    """How data is read whose lists have `size` entries, as far as that is known.

    Raises:
        ConfigurationError: It can't be gathered, or can be read in two ways.
    """
    found = _MetricReading(size, lists_are_columns)
    _check(data, found, "")
    return found


def _check(data: Any, found: Reading, path: str) -> None:
    if found.is_column(data) or isinstance(data, torch.Tensor):
        return
    children = pytree.items(data)
    if children is None:
        raise ConfigurationError(
            f"gather_for_metrics takes tensors, arrays, lists, and tuples with an entry for each sample, and dicts and "
            f"dataclasses of these, but input_data{path} is a {type(data).__name__}: put it in a list, or use "
            "gather_object"
        )
    for key, child in children:
        _check(child, found, path + pytree.step(data, key))


def _gather_objects(data: Any, own: Reading, ranks: Ranks) -> Any:
    """The data with the entries of all ranks in each list, tensor, or array."""
    PartialState().compare_calls("gather_object", group=ranks.group)
    device = None if PartialState().device.type == "cpu" else pytree.find_device(data)
    mine = _portable(data, own), own.rows
    found = [mine] if ranks.size == 1 else collectives.all_objects(mine, ranks.group)
    readings = [replace(own, rows=size) for _, size in found]
    try:
        joined = rows.join([each for each, _ in found], readings)
    except UnevenRowsError as error:
        raise DistributedOperationException(
            f"gather_for_metrics can't join what the ranks have passed: {error}. Pass the same structure on all ranks. "
            "For tensors whose shapes differ, call pad_across_processes first, or pass use_gather_object=True"
        ) from error
    return joined if device is None else pytree.recursively_apply(lambda leaf: leaf.to(device), joined)


def _portable(data: Any, own: Reading) -> Any:
    """The data as it is sent: tensors on the CPU, with dimensions; as lists of their rows if lists are gathered."""
    if rows.is_array(data):
        if isinstance(data, torch.Tensor):
            data = data.detach().cpu()
            data = data.reshape(1) if data.ndim == 0 else data
        return list(data) if own.lists_are_columns and data.ndim else data
    if own.is_column(data):
        has_tensors = PartialState().device.type != "cpu" and pytree.leaves(data[0])
        return pytree.recursively_apply(lambda entry: entry.detach().cpu(), data) if has_tensors else data
    new = pytree.with_children(data, lambda _, child: _portable(child, own))
    return data if new is None else new


@contextmanager
def overriding_even_batches(loaders: Iterable[DataLoader[Any]], even_batches: bool) -> Iterator[None]:
    """Sets, within the block, whether the loaders pad the last round of batches.

    Args:
        loaders: Prepared loaders. Those that cannot change it, because their dataset is iterable or because rank 0
            reads for all, are left as they are, with a warning.
        even_batches: Whether they pad it.
    """
    shards = [shard_of(loader) for loader in loaders if getattr(loader, "num_processes", 1) > 1]
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
    if state.num_steps == 1 or loader is None:
        return
    fewest = fewest_batches(loader)
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


def _chooser(loader: Any) -> Any:
    """What chooses the ranks' shares: the loader itself if rank 0 reads for all."""
    dataset = loader.base_dataloader.dataset
    return dataset if isinstance(dataset, IterableDatasetShard) else shard_of(loader) or loader


def fewest_batches(loader: Any) -> int | None:
    """The batches of the ranks that have fewer than others; `None` if there are none, -1 if that is unknown."""
    ranks = loader.num_processes
    if ranks == 1:
        return None
    chooser = _chooser(loader)
    if isinstance(chooser, IterableDatasetShard) and chooser.num_processes == 1:
        return UNKNOWN  # each rank reads files of its own
    if chooser.even_batches or loader.drops_last:
        return None
    if loader.has_parts:
        return UNKNOWN
    try:
        full = loader.total_batch_size
        samples = loader.sample_count
        samples = loader.total_dataset_length if samples is None else samples
    except (TypeError, ConfigurationError):
        full, samples = ranks, getattr(index_sampler(loader.base_dataloader), "total_length", None)
    if samples is None:
        return UNKNOWN
    rounds, left = divmod(samples, full)
    most = ranks - 1 if chooser is loader else full - full // ranks  # with more than these, each rank has one
    return int(rounds) if 0 < left <= most else None


def refuse_uneven(why: str, instead: str) -> None:
    """Refuses a call that needs all ranks in a loop in which some may run out of batches before the others.

    Args:
        why: What needs all ranks, and for what.
        instead: What to do.

    Raises:
        ConfigurationError: They may.
    """
    if any(fewest_batches(loader) is not None for loader in GradientState().loaders_in_use):
        raise ConfigurationError(
            f"{why}, but some may run out of batches before the others in this loop: {instead}, leave out "
            "even_batches=False, or pass drop_last=True to the DataLoader"
        )


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
