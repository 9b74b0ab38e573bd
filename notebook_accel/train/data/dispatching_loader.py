"""A loader that only rank 0 reads from; every rank gets its part of each round of batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.data.batch_transfer import Round, is_sent_as_bytes, receive, send
from notebook_accel.train.data.loader import PreparedLoader
from notebook_accel.train.data.sharding import UNKNOWN
from notebook_accel.train.data.skipping import read
from notebook_accel.train.ranks.state import PartialState
from notebook_accel.train.tensors import tree

_NO_BATCH = object()


class DataLoaderDispatcher(PreparedLoader):
    """A prepared loader that reads on rank 0, which sends every rank its part.

    Args:
        base_dataloader: The loader; only rank 0 reads from it.
        split_batches: Whether each batch is split into one part for each rank; otherwise, ranks get whole batches.
        even_batches: Whether the last round is padded with the first samples, so that all parts have the same size.
        slice_fn: Slices a batch, instead of `slice_tensors`.
        options: The options of `PreparedLoader`.
    """

    def __init__(
        self,
        base_dataloader: DataLoader[Any],
        *,
        split_batches: bool = False,
        even_batches: bool = True,
        slice_fn: Callable[..., Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(base_dataloader, **options)
        self.split_batches = split_batches
        self.even_batches = even_batches
        self.slice_fn = slice_fn
        self._round_remainder = UNKNOWN

    _reads_for_others = True

    @property
    def _reads(self) -> bool:
        return PartialState().process_index == 0

    @property
    def _restores_position(self) -> bool:
        return self._reads and self.is_stateful

    def __len__(self) -> int:
        per_round = 1 if self.split_batches else self.num_processes
        whole, left = divmod(len(self.base_dataloader), per_round)
        return max(0, whole + bool(left and not self._drop_last) - self.skipped)

    def _batches(self, on_skipped: Callable[[], None] | None = None) -> Iterator[Any]:
        if self._reads:
            return send(self._rounds(), self._set_round_remainder, self.sharing)
        return receive(self._set_round_remainder, self.sharing)

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
        first: list[Any] = []
        if self.skipped:
            first = [self._some_rows(batch) for batch in itertools.islice(batches, per_round)]
        while taken := list(itertools.islice(batches, per_round)):
            first = first or [self._some_rows(batch) for batch in taken]
            if self._is_regular(taken):
                yield Round(taken)
                continue
            upcoming = next(batches, _NO_BATCH) if len(taken) == per_round else _NO_BATCH
            if upcoming is not _NO_BATCH:
                batches = itertools.chain([upcoming], batches)
                yield self._split(taken, first, is_last=False)
            elif len(taken) == per_round or not self._drop_last:
                yield self._split(taken, first, is_last=True)

    def _some_rows(self, batch: Any) -> Any:
        """As many rows as may be needed to pad a round, copied so that the others can be freed."""
        return tree.recursively_apply(
            lambda tensor: tensor[: self.num_processes].clone() if tensor.ndim else tensor,
            batch,
            test_type=is_sent_as_bytes,
        )

    def _is_regular(self, taken: list[Any]) -> bool:
        """Whether each rank can get one of the batches unchanged."""
        if self.split_batches or self.slice_fn is not None or len(taken) < self.num_processes:
            return False
        rows = {tensor.shape[0] for batch in taken for tensor in tree.leaves(batch)[:1] if tensor.ndim}
        return len(rows) <= 1

    def _split(self, taken: list[Any], first: list[Any], is_last: bool) -> Round:
        """Concatenates what was read, and splits it into parts of the same size, or of almost the same size."""
        ranks = self.num_processes
        if not is_last and not self.split_batches and self.slice_fn is None:
            return Round(taken)  # of different sizes, as the sampler chose them
        batch, rows = _join(taken)
        if rows % ranks and not self.even_batches:
            ends = [*itertools.accumulate(rows // ranks + (rank < rows % ranks) for rank in range(ranks))]
        else:
            size = -(-rows // ranks)
            padded = rows
            while padded < size * ranks:
                batch, padded = _join([batch, *first])
            ends = [size * (rank + 1) for rank in range(ranks)]
        slice_fn = self.slice_fn or tree.slice_tensors
        parts = [
            slice_fn(batch, slice(start, end), process_index=rank, num_processes=ranks)
            for rank, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True))
            if start < end
        ]
        return Round(parts, rows if ends[-1] > rows else 0, is_last)


def _join(batches: list[Any]) -> tuple[Any, int]:
    """Concatenates batches; returns the result and its number of rows."""
    try:
        joined = batches[0] if len(batches) == 1 else tree.concatenate(batches)
        return joined, tree.find_batch_size(joined)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigurationError(
            "rank 0 reads for all ranks, and has to join the remaining batches to divide them, but they can't be "
            f"joined ({error}): pass DataLoaderConfiguration(dispatch_batches=False), drop_last=True, or a collate_fn "
            "that makes tensors of one shape"
        ) from error
