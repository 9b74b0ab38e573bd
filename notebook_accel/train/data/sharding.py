"""Each rank's share of the samples. All ranks draw the same order; each keeps its part.

By default rank r takes the batches r, r + N, … With `split_batches` every batch is cut into N parts. Where the last
round of batches is incomplete, it is filled up, with `even_batches`, by the first samples over and over: with 5 samples
in batches of 2, rank 0 gets [0, 1] and [4, 0], and rank 1 gets [2, 3] and [1, 2].
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from torch.utils.data import BatchSampler, Sampler

from notebook_accel.errors import ConfigurationError

UNKNOWN = -1
"""A remainder that is not known (yet)."""


class BatchSamplerShard(BatchSampler):
    """One rank's share of a batch sampler.

    Args:
        batch_sampler: Yields lists of indices, the same ones on all ranks. What yields single indices is taken for a
            sampler of batches that are ready-made in the dataset.
        num_processes: The number of ranks.
        process_index: This rank.
        split_batches: Whether each batch is cut into one part for each rank.
        even_batches: Whether the last round is filled up, so that all ranks get as many batches of the same size.

    Raises:
        ConfigurationError: Batches cannot be split by the number of ranks, or their size is not known and they are to
            be even.

    Attributes:
        remainder: How many of the rows of the last round, of all ranks, are not repeated; 0 if all are, -1 until that
            round has been reached.
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
        if split_batches and self.batch_size is not None and self.batch_size % num_processes:
            raise indivisible(self.batch_size, num_processes)

    @property
    def even_batches(self) -> bool:
        """Whether the last round is filled up."""
        return self._even_batches

    @even_batches.setter
    def even_batches(self, even: bool) -> None:
        if even and self.batch_size is None:
            raise ConfigurationError(
                f"even_batches=True refills batches to their full size, but {type(self.batch_sampler).__name__} has "
                "no batch_size: give it one, or pass DataLoaderConfiguration(even_batches=False)"
            )
        self._even_batches = even

    @property
    def total_length(self) -> int:
        """The number of batches of the whole."""
        return len(self.batch_sampler)

    def __len__(self) -> int:
        if self.split_batches:
            return self.total_length
        rounds, left = divmod(self.total_length, self.num_processes)
        if self.drop_last or not left:
            return rounds
        return rounds + (self.even_batches or self.process_index < left)

    def __iter__(self) -> Iterator[Any]:
        self.remainder = UNKNOWN
        return self._parts() if self.split_batches else self._turns()

    def set_epoch(self, epoch: int) -> None:
        """Passes the epoch on to the wrapped sampler, if it has `set_epoch`."""
        if hasattr(self.batch_sampler, "set_epoch"):
            self.batch_sampler.set_epoch(epoch)

    def _turns(self) -> Iterator[Any]:
        """Every N-th batch, once its round is complete."""
        size, ranks, rank = self.batch_size, self.num_processes, self.process_index
        first: list[Any] = []  # the samples of the first round
        turn: list[Any] = []
        is_short = False
        for batch in self.batch_sampler:
            if is_short and self.even_batches:
                raise _uneven(self.batch_sampler, size)
            turn.append(batch)
            is_short = size is not None and len(batch) < size
            if len(turn) == ranks and not (is_short and self.even_batches):
                first = first or list(itertools.chain(*turn)) if self.even_batches else first
                yield turn[rank]
                turn = []
        self.remainder = 0
        if not turn or self.drop_last:
            return
        if not self.even_batches:
            yield from turn[rank : rank + 1]
            return
        assert size is not None
        left = list(itertools.chain(*turn))
        self.remainder = len(left)
        yield refill(left, first or left, size * ranks)[rank * size : (rank + 1) * size]

    def _parts(self) -> Iterator[Any]:
        """This rank's part of each batch."""
        first: list[Any] = []
        is_short = False
        for batch in self.batch_sampler:
            size = len(batch) if self.batch_size is None else self.batch_size
            if is_short and self.even_batches:
                raise _uneven(self.batch_sampler, size)
            is_short = len(batch) < size
            first = first or batch
            if is_short and self.even_batches:
                self.remainder = len(batch)
                batch = refill(batch, first, size)
            part = -(-size // self.num_processes)
            if own := batch[self.process_index * part : (self.process_index + 1) * part]:
                yield own
        self.remainder = max(0, self.remainder)


class ReadyBatchShard(Sampler[int]):
    """One rank's share of the batches that a dataset has ready-made, by their indices.

    Args:
        sampler: Yields the indices, the same ones on all ranks.
        options: Those of a `BatchSamplerShard`, for batches of one such index.
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
        """How many batches of the last round are not repeated; 0 if all are, -1 until that round has been reached."""
        return self.shard.remainder


def refill(samples: list[Any], first: list[Any], size: int) -> list[Any]:
    """Fills up a list to `size` with the first samples, over and over."""
    return samples + list(itertools.islice(itertools.cycle(first), size - len(samples)))


def indivisible(batch_size: int, num_processes: int) -> ConfigurationError:
    """The message for a batch size that cannot be split."""
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
