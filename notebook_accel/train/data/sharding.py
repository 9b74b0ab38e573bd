"""Each rank's share of the samples. All ranks draw the same order; each keeps its part.

By default, rank r takes the batches r, r + N, … With `split_batches`, each batch is split into N parts. If the last
round of batches is incomplete, `even_batches` pads it with the first samples, repeated as needed: with 5 samples in
batches of 2, rank 0 gets [0, 1] and [4, 0], and rank 1 gets [2, 3] and [1, 2].
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from torch.utils.data import BatchSampler, Sampler

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.data import order
from notebook_accel.train.data.samplers import index_sampler

UNKNOWN = -1
"""The remainder if it cannot be computed, or cannot be computed yet."""


class BatchSamplerShard(BatchSampler):
    """One rank's share of a batch sampler.

    Args:
        batch_sampler: Yields lists of indices, the same on all ranks. If it yields single indices, these are taken as
            indices of batches that the dataset makes itself.
        num_processes: The number of ranks.
        process_index: This rank.
        split_batches: Whether each batch is split into one part for each rank.
        even_batches: Whether the last round is padded, so that all ranks get equally many batches, of the same size if
            the sampler has a `batch_size`. Without one, such as for batches of samples of similar length, the last
            round is padded with whole batches of the first.

    Raises:
        ConfigurationError: The batch size is not divisible by the number of ranks, or it is not known but needed to
            split batches evenly.

    Attributes:
        remainder: The number of rows in the last round, of all ranks, that are not repetitions; 0 if there are no
            repetitions, -1 until that round is reached.
    """

    sampler: Any

    def __init__(
        self,
        batch_sampler: Any,
        num_processes: int = 1,
        process_index: int = 0,
        split_batches: bool = False,
        even_batches: bool = True,
    ) -> None:
        self.batch_sampler = batch_sampler
        self.sampler = getattr(batch_sampler, "sampler", batch_sampler)
        self.num_processes = num_processes
        self.process_index = process_index
        self.split_batches = split_batches
        self.batch_size: int | None = getattr(batch_sampler, "batch_size", None)  # type: ignore[assignment]
        self.drop_last: bool = getattr(batch_sampler, "drop_last", False)
        self.remainder = UNKNOWN
        self.even_batches = even_batches
        self.follows_first_rank = False
        """Whether the sampler may draw from the global generators, and does so as on rank 0."""
        self.first_round: list[Any] = []
        """The batches of the first round of the last iteration."""
        if split_batches and self.batch_size is not None and self.batch_size % num_processes:
            raise indivisible(self.batch_size, num_processes)

    @property
    def even_batches(self) -> bool:
        """Whether the last round is padded."""
        return self._even_batches

    @even_batches.setter
    def even_batches(self, even: bool) -> None:
        if even and self.split_batches and self.batch_size is None:
            raise ConfigurationError(
                "split_batches=True with even_batches=True refills batches to their full size, but "
                f"{type(self.batch_sampler).__name__} has no batch_size: give it one, or pass "
                "DataLoaderConfiguration(even_batches=False)"
            )
        self._even_batches = even

    @property
    def total_length(self) -> int:
        """The number of batches on all ranks together."""
        return len(self.batch_sampler)

    def __len__(self) -> int:
        if self.split_batches:
            return self.total_length - self._misses_last
        rounds, left = divmod(self.total_length, self.num_processes)
        if self.drop_last or not left:
            return rounds
        return rounds + (self.even_batches or self.process_index < left)

    @property
    def _misses_last(self) -> bool:
        """Whether the last batch is so short that this rank gets no part of it; `False` if its size isn't known."""
        if self.even_batches or self.drop_last or self.batch_size is None or self.sampler is self.batch_sampler:
            return False
        try:
            left: int = len(self.sampler) % self.batch_size
        except TypeError:  # the sampler has no length
            return False
        return 0 < left <= self.process_index * (self.batch_size // self.num_processes)

    def __iter__(self) -> Iterator[Any]:
        self.remainder = UNKNOWN
        return self._batch_parts() if self.split_batches else self._whole_batches()

    def _drawn(self) -> Iterator[Any]:
        """The batches of all ranks."""
        sampler = self.batch_sampler
        batches = order.drawn_as_on_first_rank(sampler) if self.follows_first_rank else iter(sampler)
        self.first_round = list(itertools.islice(batches, 1 if self.split_batches else self.num_processes))
        yield from self.first_round
        yield from batches

    def set_epoch(self, epoch: int) -> None:
        """Passes the epoch to the wrapped sampler if it has `set_epoch`."""
        if hasattr(self.batch_sampler, "set_epoch"):
            self.batch_sampler.set_epoch(epoch)

    def _whole_batches(self) -> Iterator[Any]:
        """Every N-th batch, once its round is complete."""
        size, ranks, rank = self.batch_size, self.num_processes, self.process_index
        first: list[Any] = []  # the samples of the first round; its batches if they have no size of their own
        current: list[Any] = []
        is_short = False
        for batch in self._drawn():
            if is_short and self.even_batches:
                raise _uneven(self.batch_sampler, size)
            current.append(batch)
            is_short = size is not None and len(batch) < size
            if len(current) == ranks and not (is_short and self.even_batches):
                if self.even_batches and not first:
                    first = current if size is None else list(itertools.chain(*current))
                yield current[rank]
                current = []
        self.remainder = 0
        if not current or self.drop_last:
            return
        if not self.even_batches:
            yield from current[rank : rank + 1]
            return
        if size is None:
            self.remainder = sum(map(len, current))
            yield pad(current, first or current, ranks)[rank]
            return
        left = list(itertools.chain(*current))
        self.remainder = len(left)
        yield pad(left, first or left, size * ranks)[rank * size : (rank + 1) * size]

    def _batch_parts(self) -> Iterator[Any]:
        """This rank's part of each batch."""
        first: list[Any] = []
        is_short = False
        for batch in self._drawn():
            size = len(batch) if self.batch_size is None else self.batch_size
            if is_short and self.even_batches:
                raise _uneven(self.batch_sampler, size)
            is_short = len(batch) < size
            first = first or batch
            if is_short and self.even_batches:
                self.remainder = len(batch)
                batch = pad(batch, first, size)
            part = -(-size // self.num_processes)
            if own := batch[self.process_index * part : (self.process_index + 1) * part]:
                yield own
        self.remainder = max(0, self.remainder)


class PremadeBatchShard(Sampler[int]):
    """One rank's share of the batches that a dataset makes itself (`DataLoader(batch_size=None)`), by their indices.

    Args:
        sampler: Yields the indices, the same on all ranks.
        options: The options of `BatchSamplerShard`, for batches of one such index.
    """

    def __init__(self, sampler: Sampler[int], **options: Any) -> None:
        self.sampler = sampler
        self.shard = BatchSamplerShard(BatchSampler(sampler, 1, drop_last=False), **options)

    def __len__(self) -> int:
        return len(self.shard)

    def __iter__(self) -> Iterator[int]:
        for (index,) in self.shard:
            yield index

    @property
    def remainder(self) -> int:
        """The number of batches in the last round that are not repetitions; 0 if none is one, -1 until that round."""
        return self.shard.remainder


def shard_of(loader: Any) -> BatchSamplerShard | None:
    """What selects this rank's share of the batches of a loader; `None` if it isn't a sampler."""
    sampler = index_sampler(getattr(loader, "base_dataloader", loader))
    if isinstance(sampler, PremadeBatchShard):
        return sampler.shard
    return sampler if isinstance(sampler, BatchSamplerShard) else None


def pad(samples: list[Any], first: list[Any], size: int) -> list[Any]:
    """Pads a list to `size` with the first samples, repeated as needed."""
    return samples + list(itertools.islice(itertools.cycle(first), size - len(samples)))


def indivisible(batch_size: int, num_processes: int) -> ConfigurationError:
    """The error for a batch size that is not divisible by the number of ranks."""
    near = max(1, round(batch_size / num_processes)) * num_processes
    return ConfigurationError(
        f"split_batches=True cuts each batch into one part for each of {num_processes} ranks, which a batch_size of "
        f"{batch_size} does not allow: make it a multiple of {num_processes}, such as {near}"
    )


def _uneven(batch_sampler: Any, size: int | None) -> ConfigurationError:
    return ConfigurationError(
        f"even_batches=True needs full batches up to the last, but {type(batch_sampler).__name__} (batch_size={size}) "
        "has yielded a shorter one before: pass DataLoaderConfiguration(even_batches=False)"
    )
