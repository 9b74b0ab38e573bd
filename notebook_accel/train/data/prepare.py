"""Makes a data loader that yields a rank's share from the user's."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    get_worker_info,
)

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.data import order
from notebook_accel.train.data.cursor import duplicate, leave_out, stateful
from notebook_accel.train.data.dispatching_loader import DataLoaderDispatcher
from notebook_accel.train.data.iterable_shard import IterableDatasetShard
from notebook_accel.train.data.loader import DataLoaderShard, PreparedLoader, SkipDataLoader
from notebook_accel.train.data.order_comparison import OrderComparison
from notebook_accel.train.data.samplers import (
    SeedableRandomSampler,
    get_sampler,
    index_sampler,
    replace_index_sampler,
    replace_sampler,
)
from notebook_accel.train.data.sharding import BatchSamplerShard, PremadeBatchShard, indivisible, shard_of
from notebook_accel.train.options.enums import RNGType
from notebook_accel.train.ranks.logging import get_logger
from notebook_accel.train.ranks.mesh import SampleSharing
from notebook_accel.train.ranks.seeds import number_of_first
from notebook_accel.train.ranks.state import PartialState

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

_logger = get_logger(__name__)


def prepare_data_loader(
    dataloader: DataLoader[Any],
    device: torch.device | None = None,
    num_processes: int | None = None,
    process_index: int | None = None,
    split_batches: bool = False,
    put_on_device: bool = False,
    rng_types: Iterable[str | RNGType] | None = None,
    dispatch_batches: bool | None = None,
    even_batches: bool = True,
    slice_fn_for_dispatch: Callable[..., Any] | None = None,
    use_seedable_sampler: bool = False,
    data_seed: int | None = None,
    non_blocking: bool = False,
    use_stateful_dataloader: bool = False,
    torch_device_mesh: DeviceMesh | None = None,
) -> PreparedLoader:
    """Makes a data loader yield one rank's share of the samples. A prepared loader is returned unchanged.

    Args:
        dataloader: The loader, which is not changed.
        device: The device to move batches to, with `put_on_device`; by default this rank's.
        num_processes: The number of ranks that share the samples; all by default.
        process_index: The number of this rank among them.
        split_batches: Whether each batch is split into one part for each rank; otherwise, ranks take batches in turn.
        put_on_device: Whether batches are moved to the device.
        rng_types: The random states that all ranks take over from rank 0 when an epoch starts; by default none.
        dispatch_batches: Whether rank 0 reads for all ranks; by default for an `IterableDataset` put on a device.
        even_batches: Whether the last round of batches is padded with the first samples, repeated as needed.
        slice_fn_for_dispatch: Slices the batches that rank 0 reads; called as
            `f(batch, slice, process_index=..., num_processes=...)`.
        use_seedable_sampler: Whether a random order depends only on a seed and the epoch.
        data_seed: That seed; torch's initial seed by default.
        non_blocking: Whether copies to a GPU overlap with computation; the loader then pins memory.
        use_stateful_dataloader: Whether the loader becomes a `StatefulDataLoader` of torchdata.
        torch_device_mesh: The ranks' mesh. Ranks along its dimensions tp, cp, sp and pp get the same samples.

    Raises:
        ConfigurationError: A setting does not work with this loader.
    """
    if isinstance(dataloader, SkipDataLoader):
        raise ConfigurationError(
            "the first batches of an iterable dataset can be skipped only after it is divided among ranks: prepare the "
            "loader first, and then skip_first_batches(prepared_loader, n)"
        )
    if isinstance(dataloader, PreparedLoader):
        return dataloader
    sharing = _sharing(num_processes, process_index, torch_device_mesh)
    ranks = sharing.data.size
    if put_on_device and device is None:
        device = PartialState().device
    if dispatch_batches is None:
        dispatch_batches = put_on_device and isinstance(dataloader.dataset, IterableDataset)
    size = getattr(index_sampler(dataloader), "batch_size", None) or dataloader.batch_size
    _check(
        dataloader,
        batch_size=size if split_batches else None,
        ranks=ranks,
        readers=len(sharing.shares),
        dispatch=dispatch_batches,
        put_on_device=put_on_device,
        has_slice_fn=slice_fn_for_dispatch is not None,
        has_useless_seed=data_seed is not None and not use_seedable_sampler,
    )
    base = stateful(dataloader) if use_stateful_dataloader else duplicate(dataloader)
    types = [RNGType.of(rng_type, "rng_types") for rng_type in rng_types or ()]
    # With this type, ranks agree on it whenever an epoch starts.
    agreed = int if RNGType.GENERATOR in types else number_of_first
    if use_seedable_sampler:
        _make_seedable(base, agreed(torch.initial_seed()) if data_seed is None else data_seed)
    if non_blocking and put_on_device and device is not None and device.type == "cuda":
        base.pin_memory = True
    options: dict[str, Any] = {
        "sharing": sharing,
        "total_batch_size": size if size is None or split_batches else size * ranks,
        "device": device if put_on_device else None,
        "non_blocking": non_blocking,
    }
    how = {"split_batches": split_batches, "even_batches": even_batches}
    if len(sharing.shares) == 1:
        return DataLoaderShard(base, **options)
    if dispatch_batches:
        others = [rng_type for rng_type in types if rng_type is not RNGType.GENERATOR]
        prepared: PreparedLoader = DataLoaderDispatcher(
            base, slice_fn=slice_fn_for_dispatch, rng_types=others, **how, **options
        )
    elif ranks == 1:
        return DataLoaderShard(base, rng_types=types, **options)
    else:
        _shard(base, agreed, types, num_processes=ranks, process_index=sharing.data.rank, **how)
        prepared = DataLoaderShard(base, rng_types=types, **options)
    prepared.comparison = OrderComparison()
    return prepared


def skip_first_batches(dataloader: DataLoader[Any], num_batches: int = 0) -> DataLoader[Any]:
    """A loader that skips the first batches of each epoch; those of a map-style dataset are not even read.

    Args:
        dataloader: A loader, prepared or not.
        num_batches: The number of batches on each rank.

    Raises:
        ConfigurationError: The loader is stateful, so it restores its own position; or the number is negative.
    """
    if num_batches < 0:
        raise ConfigurationError(f"num_batches={num_batches}: must be 0 or more")
    if not num_batches:
        return dataloader
    base = dataloader.base_dataloader if isinstance(dataloader, PreparedLoader) else dataloader
    if hasattr(base, "load_state_dict"):
        raise ConfigurationError(
            "a stateful loader resumes by itself where its state was saved, and would skip these batches in addition: "
            "iterate over the loader itself once its state is loaded"
        )
    if isinstance(dataloader, PreparedLoader):
        return dataloader.skipping(num_batches)
    if isinstance(dataloader.dataset, IterableDataset):
        return SkipDataLoader(dataloader).skipping(num_batches)
    return leave_out(dataloader, 0, num_batches)


def _sharing(num_processes: int | None, process_index: int | None, mesh: DeviceMesh | None) -> SampleSharing:
    """How the ranks share the samples."""
    if num_processes is None or process_index is None:
        state = PartialState()
        num_processes = state.num_processes if num_processes is None else num_processes
        process_index = state.process_index if process_index is None else process_index
    return SampleSharing.of(mesh, process_index, num_processes)


def _check(
    loader: DataLoader[Any],
    *,
    batch_size: int | None,
    ranks: int,
    readers: int,
    dispatch: bool,
    put_on_device: bool,
    has_slice_fn: bool,
    has_useless_seed: bool,
) -> None:
    if batch_size is not None and batch_size % ranks:
        raise indivisible(batch_size, ranks)
    if dispatch and not put_on_device:
        raise ConfigurationError(
            "dispatch_batches=True needs put_on_device=True: what rank 0 reads reaches the other ranks on their devices"
        )
    if dispatch and readers > 1 and not (dist.is_initialized() and dist.get_world_size() == readers):
        raise ConfigurationError(
            f"dispatch_batches=True shares the samples among all ranks of the process group, not among {readers} of "
            "them: pass dispatch_batches=False"
        )
    if has_slice_fn and not dispatch:
        raise ConfigurationError(
            "slice_fn_for_dispatch has no effect here: pass dispatch_batches=True, or leave it out"
        )
    if has_useless_seed:
        raise ConfigurationError("data_seed has no effect without use_seedable_sampler=True: pass both, or neither")
    sampler = get_sampler(loader)
    if isinstance(sampler, DistributedSampler) and sampler.num_replicas > 1:
        raise ConfigurationError(
            "this loader's DistributedSampler already selects each rank's share, and preparing it would divide that "
            "share again: leave the sampler out (pass shuffle=True for a random order)"
        )


def _make_seedable(base: DataLoader[Any], seed: int) -> None:
    """Makes a random order depend only on a seed and the epoch; any other order is kept."""
    sampler = get_sampler(base)
    if isinstance(sampler, RandomSampler):
        replace_sampler(base, SeedableRandomSampler.like(sampler, seed))


def _shard(base: DataLoader[Any], agreed: Callable[[int], int], types: Sequence[RNGType], **options: Any) -> None:
    """Makes a loader yield one rank's share.

    Args:
        base: The loader.
        agreed: Gives a seed that is the same on all ranks.
        types: The random states that all ranks take over from rank 0 when an epoch starts.
        options: Which rank this is of how many, and how they share batches.
    """
    if isinstance(base.dataset, IterableDataset):
        _shard_iterable(base, **options)
        return
    if base.num_workers and options["process_index"]:
        base.worker_init_fn = _RankSeeds(options["process_index"], base.worker_init_fn)
    follows = RNGType.GENERATOR in types and order.draws_freely(base)
    top = index_sampler(base)
    if base.batch_sampler is not None or isinstance(top, BatchSampler):
        replace_index_sampler(base, BatchSamplerShard(top, **options))
    elif options["split_batches"]:
        raise _premade_batches()
    else:
        replace_index_sampler(base, PremadeBatchShard(top, **options))
    if (shard := shard_of(base)) is not None:
        shard.follows_first_rank = follows
    sampler = get_sampler(base)
    if not isinstance(sampler, SeedableRandomSampler) and getattr(sampler, "generator", _ABSENT) is None:
        # All ranks have to draw the same order: from a generator that can be made that of rank 0.
        sampler.generator = torch.Generator()
        sampler.generator.manual_seed(agreed(int(torch.empty((), dtype=torch.int64).random_().item())))


class _RankSeeds:
    """Has the workers of a loader draw other numbers than those of rank 0, as if one rank had all workers.

    Ranks with the same seed, which draw one order of the samples, would otherwise augment them in the same way:
    https://github.com/huggingface/transformers/issues/37932

    Args:
        rank: The number of this rank, of those that read different samples.
        then: What else a worker begins with, as `DataLoader` takes it.
    """

    def __init__(self, rank: int, then: Callable[[int], object] | None) -> None:
        self._rank = rank
        self._then = then

    def __call__(self, worker_id: int) -> None:
        info = get_worker_info()
        assert info is not None
        seed = info.seed + self._rank * info.num_workers
        object.__setattr__(info, "seed", seed)  # which has the worker's id added
        random.seed(seed)
        torch.manual_seed(seed)
        if (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed(numpy.random.SeedSequence(seed).generate_state(4))
        if self._then is not None:
            self._then(worker_id)


def _shard_iterable(base: DataLoader[Any], **options: Any) -> None:
    size, ranks = base.batch_size, options["num_processes"]
    if size is None and options["split_batches"]:
        raise _premade_batches()
    if (parts := _parts(base.dataset, **options)) is not None:
        base.__dict__["dataset"] = IterableDatasetShard(parts, size or 1, base.drop_last, even_batches=False)
        return
    base.__dict__["dataset"] = shard = IterableDatasetShard(
        base.dataset,  # type: ignore[arg-type]
        batch_size=size or 1,
        drop_last=base.drop_last,
        **options,
    )
    if base.num_workers:
        shard.share_memory()
    if size is not None and options["split_batches"]:
        base.__dict__["batch_size"] = size // ranks
        base.__dict__["batch_sampler"] = BatchSampler(base.sampler, size // ranks, base.drop_last)


def _parts(dataset: Any, *, num_processes: int, process_index: int, **how: Any) -> Any:
    """This rank's files of a data set that consists of several, as those of `datasets` do; `None` to read it whole.

    Ranks that read whole files get different numbers of batches, so they do so only if that is allowed.
    """
    files = getattr(dataset, "num_shards", None) or getattr(dataset, "n_shards", None)
    if not isinstance(files, int) or files < num_processes or not hasattr(dataset, "shard"):
        return None
    if files % num_processes or how["split_batches"] or how["even_batches"]:
        _logger.warning_once(
            f"each of the {num_processes} ranks reads all {files} files of this data set, and keeps its share of the "
            "samples. Ranks read only their own files with DataLoaderConfiguration(dispatch_batches=False, "
            "even_batches=False), a number of files that the number of ranks divides, and without split_batches; "
            "then, train in accelerator.join_uneven_inputs, since some ranks get fewer batches"
        )
        return None
    return dataset.shard(num_shards=num_processes, index=process_index)


def _premade_batches() -> ConfigurationError:
    return ConfigurationError(
        "split_batches=True can't cut batches that the dataset makes itself (batch_size=None): pass "
        "dispatch_batches=True, so that rank 0 cuts them"
    )


_ABSENT = object()
