"""A loader that only rank 0 reads from; every rank gets its part of each round of batches."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.data.batch_transfer import Round, is_sent_as_bytes, receive, send
from notebook_accel.train.data.cursor import read
from notebook_accel.train.data.loader import PreparedLoader
from notebook_accel.train.data.sharding import UNKNOWN, pad
from notebook_accel.train.ranks.logging import get_logger
from notebook_accel.train.ranks.mesh import SampleSharing
from notebook_accel.train.ranks.state import PartialState
from notebook_accel.train.tensors import pytree, rows
from notebook_accel.train.tensors.rows import Reading, UnevenRowsError

_logger = get_logger(__name__)
_NO_BATCH = object()


class DataLoaderDispatcher(PreparedLoader):
    """A prepared loader that reads on rank 0, which sends every rank its part.

    Args:
        base_dataloader: The loader, or a data set; only rank 0 reads from it.
        split_batches: Whether each batch is split into one part for each rank; otherwise, ranks get whole batches.
        even_batches: Whether the last round is padded with the first samples, so that all parts have the same size.
        slice_fn: Slices a batch, instead of `slice_tensors`.
        options: The options of `PreparedLoader`; without `sharing`, all ranks get different samples.
    """

    def __init__(
        self,
        base_dataloader: DataLoader[Any] | Dataset[Any],
        *,
        split_batches: bool = False,
        even_batches: bool = True,
        slice_fn: Callable[..., Any] | None = None,
        **options: Any,
    ) -> None:
        if "sharing" not in options:
            state = PartialState()
            options["sharing"] = SampleSharing.of(None, state.process_index, state.num_processes)
        super().__init__(base_dataloader, **options)
        if split_batches and not isinstance(base_dataloader, DataLoader):
            self._total_batch_size = self.base_dataloader.batch_size
        self.split_batches = split_batches
        self.even_batches = even_batches
        self.slice_fn = slice_fn
        self._round_remainder = UNKNOWN
        self._first: list[Any] | None = None
        """On rank 0, the first rows of this epoch, with which its last round is padded; `None` before they are read."""
        self._before_upcoming: dict[str, Any] | None = None
        """The position from before a batch of the next round that was read to see whether there is one."""
        self._continues = False
        """Whether the next epoch is the one that they are of, since a stateful loader was restored in its middle."""

    _reads_for_others = True

    @property
    def _reads(self) -> bool:
        return PartialState().process_index == 0

    @property
    def _restores_position(self) -> bool:
        return self._reads and self.use_stateful_dataloader

    def __len__(self) -> int:
        per_round = 1 if self.split_batches else self.num_processes
        whole, left = divmod(len(self.base_dataloader), per_round)
        return max(0, whole + bool(left and not self.drops_last) - self.skipped)

    def _batches(self, on_skipped: Callable[[], None] | None = None) -> Iterator[Any]:
        if self._reads:
            return send(self._rounds(), self._set_round_remainder, self.sharing)
        return receive(self._set_round_remainder, self.sharing)

    @property
    def rows(self) -> int | None:
        return None if self._active is None else rows.count(self._active.batch)

    def _base_position(self) -> dict[str, Any]:
        return super()._base_position() if self._before_upcoming is None else self._before_upcoming

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        if "base" in state and state["start"] is not None and _is_plain(self._first):
            state["first"] = self._first
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._first = state_dict.get("first")
        self._continues = self._first is not None
        if "base" in state_dict and state_dict["start"] is not None and self.even_batches and not self._continues:
            _logger.warning(
                "The checkpoint doesn't have the first samples of this epoch, because they are objects that a file "
                "can't hold. If the last round of batches is incomplete, its own samples are repeated to fill it."
            )

    def _set_round_remainder(self, remainder: int) -> None:
        self._round_remainder = remainder

    def _end(self, last: Any) -> None:
        self.end_of_dataloader = True
        self.remainder = self._round_remainder

    def _rounds(self) -> Iterator[Round]:
        """Reads the batches of one round at a time, on rank 0."""
        per_round = 1 if self.split_batches else self.num_processes
        skipped = self.skipped - 1 if self.skipped else 0  # the first round is read anyway, for the samples to pad with
        batches = read(self.base_dataloader, skipped * per_round, start=per_round)
        first = self._first if self._continues else None
        self._continues, self._before_upcoming = False, None
        if self.skipped:
            first = self._first_rows(list(itertools.islice(batches, per_round)))
        while taken := list(itertools.islice(batches, per_round)):
            self._before_upcoming = None
            if first is None:
                first = self._first_rows(taken)
            self._first = first
            if self._is_regular(taken):
                yield Round(taken)
                continue
            self._before_upcoming = self._base_position() if self._restores_position else None
            upcoming = next(batches, _NO_BATCH) if len(taken) == per_round else _NO_BATCH
            if upcoming is not _NO_BATCH:
                batches = itertools.chain([upcoming], batches)
                # Batches that need not be divided may have any sizes, as the sampler chose them.
                yield self._divide(taken, first) if self._divides_each else Round(taken)
            elif len(taken) == per_round or not self.drops_last:
                yield dataclasses.replace(self._last_round(taken, first), is_last=True)

    @property
    def _divides_each(self) -> bool:
        """Whether the samples of every round are divided, rather than only those of the last."""
        return self.split_batches or self.slice_fn is not None

    @property
    def _batch_size(self) -> int | None:
        """The number of samples in each batch but the last; `None` if it is not fixed."""
        total = self._total_batch_size
        return total if total is None or self.split_batches else total // self.num_processes

    def _first_rows(self, taken: list[Any]) -> list[Any]:
        """As many rows as may be needed to pad a round, copied so that the others can be freed.

        There are none if these batches can't be divided.

        Raises:
            ConfigurationError: All batches have to be divided, and these can't be.
        """
        try:
            if self.slice_fn is None:
                for batch in taken:
                    self._check_divisible(batch)
            parts = [rows.take(batch, slice(self.num_processes), Reading(rows.count(batch))) for batch in taken]
        except UnevenRowsError as error:
            if self.split_batches and self.slice_fn is None:
                raise self._cannot_divide(error) from error
            return []
        return [pytree.recursively_apply(torch.clone, part, test_type=is_sent_as_bytes) for part in parts]

    def _check_divisible(self, batch: Any) -> None:
        """Raises if it isn't clear which entries of a batch belong to which sample.

        It isn't for a list of three images of three channels each.
        """
        found, size = rows.measure(batch), self._batch_size
        if size is not None and found != size and Reading(size).fits(batch):
            raise UnevenRowsError(f"its lists can be read as {found} samples or as {size}")

    def _is_regular(self, taken: list[Any]) -> bool:
        """Whether each rank can get one of the batches unchanged."""
        if self._divides_each or len(taken) < self.num_processes:
            return False
        return len(set(map(_rows_at_a_glance, taken))) == 1

    def _last_round(self, taken: list[Any], first: list[Any]) -> Round:
        """Divides the samples of the last round, or shares its batches whole if these can't be joined or divided."""
        if self._divides_each:
            return self._divide(taken, first)
        if self._batch_size is None or not first:
            return self._share_whole(taken)
        try:
            return self._divide(taken, first)
        except ConfigurationError:
            return self._share_whole(taken)

    def _share_whole(self, taken: list[Any]) -> Round:
        """A round of whole batches, which are repeated for ranks that would get none."""
        counts = [rows.count(batch) for batch in taken]
        known = [each for each in counts if each is not None]
        length = sum(known) if len(known) == len(counts) else UNKNOWN
        if not self.even_batches:
            return Round(taken)
        own = taken[-1]
        if self._batch_size is not None and length != UNKNOWN and known[-1] < max(known):
            with contextlib.suppress(UnevenRowsError):
                own = _padded(own, rows.measure(own), [], max(known))
                own = rows.slice_tensors(own, slice(max(known)))
        parts = pad([*taken[:-1], own], taken, self.num_processes)
        return Round(parts, length if own is not taken[-1] or len(parts) > len(taken) else 0)

    def _divide(self, taken: list[Any], first: list[Any]) -> Round:
        """Concatenates what was read, and divides it into parts of the same size, or of almost the same size."""
        try:
            return self._divide_joined(rows.concatenate(taken), first)
        except UnevenRowsError as error:
            raise self._cannot_divide(error) from error

    def _divide_joined(self, batch: Any, first: list[Any]) -> Round:
        ranks = self.num_processes
        length = rows.measure(batch) if self.slice_fn is None else _length(batch)
        if length % ranks and not self.even_batches:
            ends = [*itertools.accumulate(length // ranks + (rank < length % ranks) for rank in range(ranks))]
        else:
            size = -(-length // ranks)
            batch = _padded(batch, length, first, size * ranks)
            ends = [size * (rank + 1) for rank in range(ranks)]
        slice_fn = self.slice_fn or rows.slice_tensors
        parts = [
            slice_fn(batch, slice(start, end), process_index=rank, num_processes=ranks)
            for rank, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True))
            if start < end
        ]
        return Round(parts, length if ends[-1] > length else 0)

    def _cannot_divide(self, error: Exception) -> ConfigurationError:
        ways = "pass DataLoaderConfiguration(dispatch_batches=False), so that each rank reads its own samples"
        if self.slice_fn is not None:
            return ConfigurationError(
                "rank 0 reads for all ranks, and joins the batches of a round for slice_fn_for_dispatch, but "
                f"{error}: {ways}, or a collate_fn that makes tensors of one shape"
            )
        return ConfigurationError(
            f"rank 0 reads for all ranks, and divides each batch because of split_batches=True, but {error}: {ways}, "
            "split_batches=False, so that each rank gets whole batches, or a slice_fn_for_dispatch that divides them"
        )


def _is_plain(data: Any) -> bool:
    """Whether a checkpoint can hold a batch."""
    if type(data) in (dict, list, tuple):
        return all(map(_is_plain, data.values() if isinstance(data, dict) else data))
    return data is None or isinstance(data, (torch.Tensor, str, bytes, int, float))


def _rows_at_a_glance(batch: Any) -> int | None:
    """The rows of the first tensor, without a look at the others; those of the batch if it has no tensors."""
    tensors = pytree.leaves(batch)
    if not tensors:
        return rows.count(batch)
    return int(tensors[0].shape[0]) if tensors[0].ndim else None


def _length(batch: Any) -> int:
    """The number of rows, as far as a `slice_fn` needs it, which may know what to do with columns that disagree."""
    found = rows.count(batch)
    return pytree.find_batch_size(batch) if found is None else found


def _padded(batch: Any, length: int, first: list[Any], size: int) -> Any:
    """A batch with more rows at the end: the first ones of the epoch or, if they don't fit, its own."""
    if length == size:
        return batch
    joined = [batch]
    try:
        repeated = rows.concatenate(first) if first else batch
        while length + _length(repeated) * (len(joined) - 1) < size:
            joined.append(repeated)
        return rows.concatenate(joined)
    except UnevenRowsError:
        if not first:
            raise
        return _padded(batch, length, [], size)
