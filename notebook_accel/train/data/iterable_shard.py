"""Each rank's share of an iterable dataset, chosen by the same rule as for samplers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from notebook_accel.train.data.order_comparison import digest
from notebook_accel.train.data.sharding import UNKNOWN, indivisible, pad


class IterableDatasetShard(IterableDataset[Any]):
    """One rank's share of an iterable dataset, which yields the same samples on all ranks.

    Args:
        dataset: The dataset.
        batch_size: The samples of a batch; with `split_batches`, of the parts of all ranks together.
        drop_last: Whether samples that do not fill a round of batches are dropped.
        num_processes: The number of ranks.
        process_index: This rank.
        split_batches: Whether each batch is split into one part for each rank.
        even_batches: Whether the last round is padded with the first samples.

    Raises:
        ConfigurationError: Batches cannot be split by the number of ranks.
    """

    def __init__(
        self,
        dataset: Iterable[Any],
        batch_size: int = 1,
        drop_last: bool = False,
        num_processes: int = 1,
        process_index: int = 0,
        split_batches: bool = False,
        even_batches: bool = True,
    ) -> None:
        if split_batches and batch_size % num_processes:
            raise indivisible(batch_size, num_processes)
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.num_processes = num_processes
        self.process_index = process_index
        self.split_batches = split_batches
        self.even_batches = even_batches
        self.remainder = UNKNOWN
        self._first: list[Any] = []
        """The samples of the first round."""
        self._is_noted = False
        self._digest = torch.zeros(2, dtype=torch.int64)
        """Whether there is one, and the digest of the first samples; in shared memory if workers read them."""
        self._resumes = False
        """Whether the next iteration continues from the dataset's restored position."""
        # Attributes of the object: from Python 3.12 on, torchdata's check for these methods doesn't call `__getattr__`.
        if hasattr(dataset, "state_dict"):
            self.state_dict = self._state_dict
        if hasattr(dataset, "load_state_dict"):
            self.load_state_dict = self._load_state_dict

    @property
    def _round(self) -> int:
        """The number of samples in one batch for each rank."""
        return self.batch_size if self.split_batches else self.batch_size * self.num_processes

    def __len__(self) -> int:
        length, own = len(self.dataset), self._round // self.num_processes  # type: ignore[arg-type]
        rounds, left = divmod(length, self._round)
        if self.drop_last or not left:
            return rounds * own
        return rounds * own + (own if self.even_batches else min(own, max(0, left - self.process_index * own)))

    def __iter__(self) -> Iterator[Any]:
        self.remainder = UNKNOWN
        if not self._resumes:
            self._first = []
        self._resumes = False
        total, rank, ranks = self._round, self.process_index, self.num_processes
        own = slice(rank * total // ranks, (rank + 1) * total // ranks)
        samples = iter(self.dataset)
        while len(current := list(itertools.islice(samples, total))) == total:
            self._note(current)
            self._first = self._first or current
            yield from current[own]
        self._note(current)
        self.remainder = 0
        if current and not self.drop_last:
            if self.even_batches:
                self.remainder = len(current)
                current = pad(current, self._first or current, total)
            yield from current[own]

    def _note(self, current: list[Any]) -> None:
        """Keeps a digest of the first samples of all ranks, as far as this process, or its first worker, reads them."""
        if self._is_noted:
            return
        self._is_noted = True
        worker = get_worker_info()
        if self.num_processes > 1 and (worker is None or worker.id == 0) and not self._digest[0]:
            found = digest(current)
            self._digest[1], self._digest[0] = found or 0, 1 if found is not None else -1

    def share_memory(self) -> None:
        """Lets this process see what a worker finds."""
        self._digest.share_memory_()  # type: ignore[no-untyped-call]

    @property
    def first_samples(self) -> int | None:
        """A digest of the first samples of all ranks; `None` if there is none."""
        is_known, found = self._digest.tolist()
        return found if is_known == 1 else None

    def set_epoch(self, epoch: int) -> None:
        """Passes the epoch to the dataset if it has `set_epoch`."""
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)

    def __getattr__(self, name: str) -> Any:
        if name == "dataset" or name.startswith("__"):  # the object is being unpickled
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def _state_dict(self) -> dict[str, Any]:
        """The dataset's position, after all samples from which this rank's batches were chosen."""
        return {"dataset": self.dataset.state_dict(), "first": self._first}  # type: ignore[attr-defined]

    def _load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.dataset.load_state_dict(state_dict["dataset"])  # type: ignore[attr-defined]
        self._first = state_dict["first"]
        self._resumes = True
