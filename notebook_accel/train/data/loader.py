"""The loader that a user iterates over: this rank's share of the batches, on its device.

It reads one batch ahead, since only an attempt to read another batch shows which batch is the last.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from multiprocessing.sharedctypes import SynchronizedBase
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset

from notebook_accel.advice import explained, listed
from notebook_accel.errors import ConfigurationError
from notebook_accel.train import step_timing
from notebook_accel.train.data import device_transfer, order, order_comparison
from notebook_accel.train.data.cursor import Cursor, Resumed, read, stateful
from notebook_accel.train.data.iterable_shard import IterableDatasetShard
from notebook_accel.train.data.order_comparison import OrderComparison
from notebook_accel.train.data.samplers import get_sampler, index_sampler
from notebook_accel.train.data.sharding import UNKNOWN, shard_of
from notebook_accel.train.options.enums import RNGType
from notebook_accel.train.ranks import environment, random_states
from notebook_accel.train.ranks.gradient_state import ActiveLoader, GradientState
from notebook_accel.train.ranks.mesh import NOT_SHARED, SampleSharing
from notebook_accel.train.ranks.seeds import share_random_states, synchronize_rng_state
from notebook_accel.train.tensors import packing, pytree, rows

_NO_BATCH = object()
_OF_A_LOADER = (
    *(name for name in inspect.signature(DataLoader).parameters if name != "dataset"),
    *("skip_batches", "use_stateful_dataloader"),
)


def _taken(given: Mapping[str, Any]) -> tuple[str, ...]:
    """The arguments of a `DataLoader` that a prepared one takes, if it is given a data set."""
    return () if isinstance(given.get("base_dataloader"), DataLoader) else _OF_A_LOADER


class PreparedLoader(DataLoader[Any]):
    """The base of prepared loaders: yields this rank's share of the batches of another, on the rank's device.

    Args:
        base_dataloader: The loader; its samplers yield this rank's share. Or a data set, of which a loader is made.
        sharing: How ranks share the samples.
        total_batch_size: The number of samples in one batch of all ranks together; `None` if it is not fixed.
        device: The device to move batches to; `None`: do not move them.
        non_blocking: Whether copies to the device overlap with computation.
        rng_types: The random states that all ranks take over from rank 0 when an epoch starts.
        of_a_loader: If a data set is given, arguments of `DataLoader`, `skip_batches`, the number of batches to skip in
            each epoch, and `use_stateful_dataloader`, whether torchdata's loader is made.

    Attributes:
        end_of_dataloader: Whether the current batch is the last.
        remainder: The number of rows in the last batch, of all ranks together, that are not repetitions; 0 if there are
            no repetitions, -1 if unknown.
        base_dataloader: The wrapped loader.
        skipped: The number of batches that it skips at the start of an epoch.
    """

    _is_accelerate_prepared = True

    @explained(listed("prepared loader"), also=_taken)
    def __init__(
        self,
        base_dataloader: DataLoader[Any] | Dataset[Any],
        *,
        sharing: SampleSharing = NOT_SHARED,
        total_batch_size: int | None = None,
        device: torch.device | None = None,
        non_blocking: bool = False,
        rng_types: Iterable[RNGType | str] | None = (),
        **of_a_loader: Any,
    ) -> None:
        skipped = 0
        if not isinstance(base_dataloader, DataLoader):
            skipped = of_a_loader.pop("skip_batches", 0)
            becomes_stateful = of_a_loader.pop("use_stateful_dataloader", False)
            base_dataloader = DataLoader(base_dataloader, **of_a_loader)
            base_dataloader = stateful(base_dataloader) if becomes_stateful else base_dataloader
            size = base_dataloader.batch_size
            total_batch_size = total_batch_size or (None if size is None else size * sharing.data.size)
        self.base_dataloader = base_dataloader
        self.sharing = sharing
        self.num_processes = sharing.data.size
        """The number of ranks that get different samples."""
        self._total_batch_size = total_batch_size
        self.device = device
        self.non_blocking = non_blocking
        self.rng_types = tuple(RNGType.of(each, "rng_types") for each in rng_types or ())
        self.skipped = skipped
        self.end_of_dataloader = False
        self.remainder = UNKNOWN
        self.cursor = Cursor()
        self._prepared_on = environment.read().world_size
        """The number of ranks where it was prepared."""
        self._base_state: dict[str, Any] | None = None
        """The state of a stateful base loader as of the current batch; the base loader itself is one batch ahead."""
        self.comparison: OrderComparison | None = None
        """What compares the order of the first epoch with those of the other ranks."""
        self._active: ActiveLoader | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_active": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        ranks = environment.read().world_size
        if ranks not in (1, self._prepared_on):
            raise ConfigurationError(
                f"this loader was prepared outside of the launched function, with num_processes={self._prepared_on}, "
                f"so its samples would not be shared among these {ranks} ranks: prepare it in the function"
            )

    def __iter__(self) -> Generator[Any, None, None]:  # type: ignore[override]
        return self._iterate(GradientState().batches_by_loader())  # now, not when the first batch is requested

    def _iterate(self, enclosing: Mapping[ActiveLoader, int]) -> Generator[Any, None, None]:
        resumed = self.cursor.next_epoch(can_continue=self.use_stateful_dataloader or self.skipped > 0)
        if resumed is None:
            return
        self.end_of_dataloader = False
        self.remainder = self._expected_remainder()
        skipped = 0 if self.use_stateful_dataloader else resumed.skipped
        self.skipped += skipped
        state = GradientState()
        self._active = state._add_dataloader(self, enclosing)
        try:
            batches = self._epoch(resumed)
            for observed in state.observers.batches:
                batches = observed(self, batches)
            yield from batches
            self._base_state = None
            self.cursor.finish()
        finally:
            state._remove_dataloader(self)
            self._active = None
            self.skipped -= skipped

    def _epoch(self, resumed: Resumed) -> Iterator[Any]:
        if resumed.is_over:  # the checkpoint was saved after the last batch, before the epoch was counted
            return
        current, batches = self._begin_epoch(resumed)
        if current is _NO_BATCH:
            return
        if self.sharing.peers.size > 1:
            batches = self._compared(current, batches)
        active = self._active
        assert active is not None
        transfer = device_transfer.transfer_for(current, self.device, self.non_blocking)
        if transfer is not None and (clock := step_timing.current()) is not None:
            transfer = step_timing.MeasuredTransfer(transfer, clock)
        if transfer is None:
            for upcoming in batches:
                yield active.deliver(current)
                current = upcoming
        else:
            current = transfer.deliver(transfer.load(current))
            for upcoming in batches:
                loaded = transfer.load(upcoming)  # the device still computes on the batch before the current one
                yield active.deliver(current)
                current = transfer.deliver(loaded)
        self._end(current)
        yield active.deliver(current)
        device_transfer.finish(self.device)
        share_random_states(self.sharing.peers, expected=False)

    def _compared(self, current: Any, batches: Iterator[Any]) -> Iterator[Any]:
        """Yields the batches, which must be the same on all ranks that get the same samples.

        What these ranks draw is compared before each, since the user's code may have drawn on some of them only.
        """
        peers, checksum = self.sharing.peers, packing.checksum(pytree.leaves(current))
        if self._reads_for_others:
            share_random_states(peers)  # rank 0 has drawn what reading the first batch needed
        while True:
            share_random_states(peers, checksum, expected=False)
            upcoming = next(batches, _NO_BATCH)
            if self._reads_for_others:
                share_random_states(peers)
            if upcoming is _NO_BATCH:
                return
            checksum = packing.checksum(pytree.leaves(upcoming))
            yield upcoming

    _reads_for_others = False
    """Whether one rank reads the samples of others too."""

    @property
    def rows(self) -> int | None:
        """The number of samples in this rank's current batch, repetitions included; `None` if it is unknown."""
        is_full = not self.end_of_dataloader or self.remainder > 0
        if is_full and self._total_batch_size is not None:
            return self._total_batch_size // self.num_processes
        if self._active is None:
            return None
        batch = self._active.batch
        found = rows.count(batch)
        has_records = isinstance(batch, list) and not any(map(rows.may_have_rows, rows.types_of(batch)))
        return None if has_records and found != len(batch) else found  # each of them may be a sample

    def _begin_epoch(self, resumed: Resumed) -> tuple[Any, Iterator[Any]]:
        """Starts an epoch; returns its first batch and an iterator over the others."""
        share_random_states(self.sharing.peers)
        cursor = self.cursor
        if resumed.start is None:
            self._synchronize_order()
            cursor.start = {**order.capture(self.base_dataloader), "has_workers": cursor.has_workers}
            return self._first_batch()
        current = random_states.capture_host()
        order.restore(self.base_dataloader, resumed.start)
        random_states.restore_host(resumed.start["host"])
        self._synchronize_order()
        cursor.start, cursor.has_workers = resumed.start, resumed.start["has_workers"]
        first_and_rest = self._first_batch(resumed.on_skipped)
        random_states.restore_host(current)
        if resumed.on_resumed is not None:
            resumed.on_resumed()
        return first_and_rest

    def _synchronize_order(self) -> None:
        """Makes the epoch's order the same on all ranks."""
        self._propagate_epoch()
        if len(self.sharing.shares) == 1:
            return
        for rng_type in self.rng_types:
            if rng_type is RNGType.GENERATOR:
                order.synchronize(self.base_dataloader)
            else:
                synchronize_rng_state(rng_type)

    def _first_batch(self, on_skipped: Callable[[], None] | None = None) -> tuple[Any, Iterator[Any]]:
        base = self.base_dataloader
        keeps_workers = getattr(base, "persistent_workers", False)
        restarts_workers = keeps_workers and self.cursor.has_workers
        with order.seeded_workers(base) if restarts_workers else contextlib.nullcontext():
            batches = self._batches(on_skipped)
            if self._restores_position:
                batches = self._tracking_state(batches)
            first = next(batches, _NO_BATCH)
        self.cursor.has_workers = keeps_workers
        self.cursor.epoch_of_workers = self.cursor.epoch if keeps_workers and self._workers_need_epoch else None
        if self.comparison is not None:
            self._compare_order()
        return first, batches

    def _compare_order(self) -> None:
        """Compares what this rank takes its share of with what the others do, in the first epoch."""
        base, comparison = self.base_dataloader, self.comparison
        self.comparison = None
        assert comparison is not None
        stream = base.dataset
        if isinstance(stream, IterableDatasetShard):
            if stream.num_processes > 1:  # otherwise, each rank reads files of its own
                comparison.compare(order_comparison.describe(stream.dataset, None, stream.first_samples))
        elif (shard := shard_of(self)) is not None:
            first = list(itertools.chain(*shard.first_round))
            comparison.compare(order_comparison.describe(stream, shard.batch_sampler, first))
        else:  # rank 0 reads for all
            comparison.compare({"share": order_comparison.share(base)})

    def _batches(self, on_skipped: Callable[[], None] | None = None) -> Iterator[Any]:
        """The batches of this rank, without the skipped ones; for `on_skipped` see `cursor.read`."""
        batches = read(self.base_dataloader, self.skipped, on_skipped=on_skipped)
        return device_transfer.prefetched(batches, self.device)

    def _tracking_state(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yields the batches, and stores the state of a stateful base loader before it reads each."""
        while True:
            self._base_state = self._base_position()
            batch = next(batches, _NO_BATCH)
            if batch is _NO_BATCH:
                return
            yield batch

    def _base_position(self) -> dict[str, Any]:
        """The state of a stateful base loader from which it reads what follows the batches so far."""
        state: dict[str, Any] = self.base_dataloader.state_dict()  # type: ignore[attr-defined]
        return state

    def _end(self, last: Any) -> None:
        """Called before the last batch is yielded."""
        self.end_of_dataloader = True
        found: int = getattr(self._shard, "remainder", UNKNOWN)
        if found != UNKNOWN:
            self.remainder = self._rows_of(found, last) if found and self._has_premade_batches else found

    @staticmethod
    def _rows_of(batches: int, one: Any) -> int:
        each = rows.count(one)
        return UNKNOWN if each is None else batches * each

    @property
    def _shard(self) -> Any:
        """The sampler or dataset that selects this rank's share."""
        base = self.base_dataloader
        return base.dataset if isinstance(base.dataset, IterableDataset) else index_sampler(base)

    @property
    def _has_premade_batches(self) -> bool:
        """Whether the dataset itself makes the batches, so that whole batches are sharded."""
        base = self.base_dataloader
        return base.batch_sampler is None and not isinstance(base.sampler, BatchSampler)

    def _expected_remainder(self) -> int:
        """The remainder that follows from the lengths; -1 if they are unknown."""
        if self.drops_last or not getattr(self._shard, "even_batches", True):
            return 0
        if self.has_parts:
            return UNKNOWN
        try:
            return self.total_dataset_length % self.total_batch_size
        except (TypeError, ConfigurationError):
            return UNKNOWN

    @property
    def has_parts(self) -> bool:
        """Whether workers read parts of a stream, each of which is divided among the ranks, and padded, by itself."""
        base = self.base_dataloader
        return base.num_workers > 1 and isinstance(base.dataset, IterableDatasetShard)

    @property
    def drops_last(self) -> bool:
        """Whether an incomplete last batch, or round of batches, is dropped."""
        base = self.base_dataloader
        return bool(base.drop_last or getattr(index_sampler(base), "drop_last", False))

    def __len__(self) -> int:
        return max(0, len(self.base_dataloader) - self.skipped)

    @property
    def gradient_state(self) -> GradientState:
        """The position of the training loop."""
        return GradientState()

    @property
    def total_batch_size(self) -> int:
        """The number of samples in one batch of all ranks together.

        Raises:
            ConfigurationError: Batches have no fixed size.
        """
        if self._total_batch_size is None:
            raise ConfigurationError("this loader's batches have no fixed size, so there is no total_batch_size")
        return self._total_batch_size

    @property
    def total_dataset_length(self) -> int:
        """The number of samples in the whole dataset."""
        dataset = self.base_dataloader.dataset
        return len(dataset.dataset if isinstance(dataset, IterableDatasetShard) else dataset)  # type: ignore[arg-type]

    @property
    def sample_count(self) -> int | None:
        """The number of samples in an epoch, which a sampler may choose; `None` if it is unknown."""
        base = self.base_dataloader
        sources: tuple[Any, ...] = (getattr(base.batch_sampler, "sampler", None), base.dataset)
        for source in () if isinstance(base.dataset, IterableDataset) else sources:
            with contextlib.suppress(Exception):  # it has no length, or the user's method fails
                return len(source)
        return None

    @property
    def iteration(self) -> int:
        """The number of epochs before this one: finished, or left early."""
        return self.cursor.epoch

    @iteration.setter
    def iteration(self, epoch: int) -> None:
        self.cursor.set_epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next epoch, which seedable samplers and `set_epoch` of datasets use."""
        self.cursor.set_epoch(epoch)
        self._propagate_epoch()

    def _propagate_epoch(self) -> None:
        base = self.base_dataloader
        for owner in (index_sampler(base), get_sampler(base), base.dataset):
            if hasattr(owner, "set_epoch"):
                owner.set_epoch(self.cursor.epoch)
        if self.cursor.epoch_of_workers not in (None, self.cursor.epoch):
            self._end_workers()

    def _end_workers(self) -> None:
        """Ends persistent workers, so that the next ones get the data set with the epoch that it has now."""
        self.cursor.epoch_of_workers = None
        self.cursor.has_workers = False
        self.base_dataloader._iterator = None  # ends them as it is collected

    @property
    def _workers_need_epoch(self) -> bool:
        """Whether workers that persist hold a copy of the data set that would not notice its next epoch.

        A data set that shares its epoch with its workers, as those of `datasets` do, keeps it in shared memory.
        """
        data: Any = self.base_dataloader.dataset
        if isinstance(data, IterableDatasetShard):
            data = data.dataset
        return hasattr(data, "set_epoch") and not any(map(_may_share_epoch, getattr(data, "__dict__", {}).values()))

    @property
    def use_stateful_dataloader(self) -> bool:
        """Whether the base loader restores its own position, as a `StatefulDataLoader` does."""
        return hasattr(self.base_dataloader, "load_state_dict")

    @property  # type: ignore[misc]  # it cannot be set
    def __class__(self) -> Any:
        """What `isinstance` also takes the loader for: one of torchdata's, if it is stateful."""
        return type(self.base_dataloader if self.use_stateful_dataloader else self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _empty, (type(self),), self.__getstate__()  # pickle's own way compares the type with `__class__`

    @property
    def _restores_position(self) -> bool:
        """Whether the base loader on this rank restores its own position; with dispatching, only on rank 0."""
        return self.use_stateful_dataloader

    def state_dict(self) -> dict[str, Any]:
        """The position for a checkpoint, within an epoch or between two.

        After the last batch, a stateful loader is at the end of this epoch, as in torchdata; any other loader counts
        the epoch as finished.
        """
        is_over = self.end_of_dataloader and self.cursor.start is not None
        state = self.cursor.state(is_over=is_over, counts=not self.use_stateful_dataloader)
        state["now"] = order.capture(self.base_dataloader)
        state["loop"] |= {
            "total_batch_size": self._total_batch_size,
            "ranks": self.num_processes,
            "samples": self.sample_count,
        }
        # Between epochs there is no position, and saving one would draw random numbers.
        if self._restores_position and (
            state["start"] is not None or hasattr(self.base_dataloader.dataset, "state_dict")
        ):
            is_ahead = self._base_state is not None and not is_over
            state["base"] = self._base_state if is_ahead else self.base_dataloader.state_dict()  # type: ignore[attr-defined]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the position in a state.

        A stateful loader then resumes with the next batch. Any other loader starts a new epoch; to resume within the
        interrupted one, iterate over `skip_first_batches(loader, n)`, which draws that epoch's order again.
        """
        if "now" not in state_dict:
            state_dict = self._state_around(state_dict)
        self.cursor.load(state_dict)
        order.restore(self.base_dataloader, state_dict["now"])
        if self._restores_position:
            self.base_dataloader.load_state_dict(state_dict.get("base", {}))  # type: ignore[attr-defined]

    def _state_around(self, base: dict[str, Any]) -> dict[str, Any]:
        """This loader's state, with a position of the base loader that torchdata or Accelerate has saved."""
        if not self.use_stateful_dataloader:
            raise ConfigurationError(
                "this state of a data loader is one of a StatefulDataLoader: prepare the loader with "
                "DataLoaderConfiguration(use_stateful_dataloader=True)"
            )
        state = Cursor().state(is_over=False, counts=False)
        return {**state, "now": order.capture(self.base_dataloader), "base": base}

    def resume_loop(self, restore: Callable[[dict[str, Any]], None], on_resumed: Callable[[], object]) -> None:
        """Makes the loop over `Accelerator.epochs` continue where the state that was loaded was saved.

        Args:
            restore: Sets the random generators to states of this rank.
            on_resumed: Called once the first batch that wasn't done is read.
        """
        resumed, loop = self.cursor.resumed, self.cursor.resumed.loop
        if not (loop.get("done") or loop.get("passes")):
            return
        then, now = loop["total_batch_size"], self._total_batch_size
        if then is None or now is None:
            then, now = loop["ranks"], self.num_processes
        resumed.passes, resumed.skipped = loop["passes"], loop["done"] * then // now
        if loop["ahead"] is not None and loop["ranks"] == self.num_processes:
            resumed.on_skipped = functools.partial(restore, loop["ahead"])
        resumed.on_resumed = on_resumed

    def skipping(self, num_batches: int) -> PreparedLoader:
        """Returns a loader that resumes this epoch after skipping `num_batches`."""
        new = copy.copy(self)
        new.skipped += num_batches
        return new

    def __getattr__(self, name: str) -> Any:
        if name == "base_dataloader" or name.startswith("__"):  # the object is being unpickled
            raise AttributeError(name)
        return getattr(self.base_dataloader, name)


def _may_share_epoch(value: Any) -> bool:
    """Whether it is a number in memory that workers share."""
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and bool(value.is_shared())  # type: ignore[no-untyped-call]
    return isinstance(value, SynchronizedBase)


def _empty(kind: type[PreparedLoader]) -> PreparedLoader:
    """A loader whose state pickle restores."""
    return kind.__new__(kind)


DataLoaderStateMixin = PreparedLoader
"""Accelerate's name for what all prepared loaders have in common."""


class DataLoaderShard(PreparedLoader):
    """A prepared loader whose rank reads its own share. Made by `prepare`.

    If you make it of a data set, as `DataLoaderShard(dataset, batch_size=8)`, every rank reads all of it.
    """


class SkipDataLoader(PreparedLoader):
    """A loader of an iterable dataset that is not sharded; skips the first batches by reading them."""
