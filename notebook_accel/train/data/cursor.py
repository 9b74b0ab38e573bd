"""Where a loader is in its epochs, and how it is read from there: skipped, interrupted, resumed, and finished epochs.

The order of samples is drawn when an epoch begins, long before a checkpoint in the middle of the epoch, so a cursor has
the random states of that moment. Resuming sets them while the order is drawn again, and then restores the current
states, so that dropout and the like are not affected.
"""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset, Sampler

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.data.order import State
from notebook_accel.train.data.samplers import index_sampler, replace_index_sampler


@dataclass
class Resumed:
    """What a loader's next epoch continues: that in which a checkpoint was saved, or nothing."""

    start: State | None = None
    """The random states at its start; `None` for an epoch that begins."""
    is_over: bool = False
    """Whether the checkpoint was saved at its end, so that no batches are left in it."""
    loop: State = field(default_factory=dict)
    """What the checkpoint has of the loop over `Accelerator.epochs`, which sets the following fields."""
    passes: int = 0
    """How often the loader's next iterations yield nothing before, since they were done."""
    skipped: int = 0
    """How many of its batches were done."""
    on_skipped: Callable[[], None] | None = None
    """Called before the first of the others is read, for a loader of a map-style dataset."""
    on_resumed: Callable[[], object] | None = None
    """Called once it has been read."""


class Cursor:
    """The position of a loader and of the loaders that resume it."""

    def __init__(self) -> None:
        self.epoch = 0
        """The number of finished epochs, and of those that were left early, since both have used up an order."""
        self.has_begun = False
        """Whether an epoch has begun that isn't among them."""
        self.start: State | None = None
        """The random states at the start of an unfinished epoch."""
        self.has_workers = False
        """Whether a loader with `persistent_workers` has started them, before this process or in it."""
        self.epoch_of_workers: int | None = None
        """The epoch that the copies of the data set in persistent workers have; `None` if there are none to renew."""
        self.done = 0
        """In a loop over `Accelerator.epochs`: the batches of the unfinished epoch that were delivered."""
        self.passes = 0
        """There, too: how often the loader was trained on to its end since the loop's epoch began."""
        self.ahead: State | None = None
        """All random states of this rank from before the next batch was read, which is read one batch ahead."""
        self.resumed = Resumed()
        """What the next epoch continues."""

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the epoch that begins next."""
        self.epoch, self.has_begun = epoch, False

    def next_epoch(self, *, can_continue: bool) -> Resumed | None:
        """Begins an epoch, and returns what it continues; `None` if the epoch was done before the checkpoint.

        Args:
            can_continue: Whether the loader leaves out what was done in the epoch that a checkpoint was saved in.
        """
        if self.resumed.passes:
            self.resumed.passes -= 1
            self.passes += 1
            return None
        resumed, self.resumed = self.resumed, Resumed()
        self.done = resumed.skipped
        if not (can_continue or resumed.skipped):
            resumed.start = None
        if resumed.start is None:
            self._leave()
        self.has_begun = True
        return resumed

    def _leave(self) -> None:
        """Counts an epoch that was left early."""
        self.epoch += self.has_begun
        self.has_begun = False

    def finish(self) -> None:
        """Records the end of an epoch."""
        self.set_epoch(self.epoch + 1)
        self.start = None

    def begin_loop(self, *, is_active: bool) -> None:
        """Records that an epoch of the loop over `Accelerator.epochs` begins, perhaps while the loader is iterated."""
        self.passes, self.ahead = 0, None
        self.resumed = Resumed(self.resumed.start, self.resumed.is_over)
        if not is_active:  # otherwise, its iteration continues in this epoch
            self.done, self.start = 0, None
            self._leave()

    def state(self, *, is_over: bool, counts: bool) -> State:
        """What a checkpoint saves.

        Args:
            is_over: Whether the current batch is the last.
            counts: Whether the epoch then counts as finished, rather than being resumed at its end.
        """
        return {
            "epoch": self.epoch + (is_over and counts),
            "start": None if is_over else self.start,
            "is_over": is_over and not counts,
            "has_workers": self.has_workers and self.epoch_of_workers is None,  # which are renewed for the next epoch
            "loop": {"done": self.done, "passes": self.passes, "ahead": self.ahead},
        }

    def load(self, state: State) -> None:
        """Restores the position from a checkpoint."""
        self.epoch, self.start, self.has_workers = state["epoch"], None, state["has_workers"]
        self.has_begun = state["start"] is not None
        self.resumed = Resumed(state["start"], state["is_over"], state.get("loop") or {})


def read(
    loader: DataLoader[Any], skipped: int, start: int = 0, on_skipped: Callable[[], None] | None = None
) -> Iterator[Any]:
    """A loader's batches without `skipped` of them from `start` on; those of a map-style dataset are not even read.

    Args:
        loader: The loader.
        skipped: The number of batches to leave out.
        start: The index of the first of them.
        on_skipped: For a map-style dataset, called when the samples of the first batch are known, and not yet read.
    """
    if not skipped:
        return iter(loader)
    if isinstance(loader.dataset, IterableDataset):
        return without(iter(loader), start, start + skipped)
    return iter(leave_out(loader, start, start + skipped, on_skipped))


def leave_out(
    loader: DataLoader[Any], start: int, stop: int, on_skipped: Callable[[], None] | None = None
) -> DataLoader[Any]:
    """A loader of a map-style dataset without the batches from `start` to before `stop`."""
    new = duplicate(loader)
    top = index_sampler(loader)
    yields_batches = loader.batch_sampler is not None or isinstance(top, BatchSampler)
    kind = SkipBatchSampler if yields_batches else Skipping
    replace_index_sampler(new, kind(top, stop - start, start, on_skipped))
    return new


def duplicate(loader: DataLoader[Any]) -> DataLoader[Any]:
    """A copy of a loader of any class that can be changed without changing the original."""
    new = copy.copy(loader)
    new._iterator = None  # the workers belong to the original
    return new


def stateful(loader: DataLoader[Any]) -> DataLoader[Any]:
    """Converts a loader to a `StatefulDataLoader`; one that is stateful already is only copied."""
    if hasattr(loader, "load_state_dict"):
        return duplicate(loader)
    try:
        from torchdata.stateful_dataloader import StatefulDataLoader  # type: ignore[import-untyped]
    except ImportError as error:
        raise ConfigurationError(
            "use_stateful_dataloader=True needs torchdata: run `pip install torchdata`, or leave it out"
        ) from error
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # it calls a deprecated function of torch, which users can't change
        new: DataLoader[Any] = StatefulDataLoader(loader.dataset)
    new.__dict__.update(copy.copy(loader).__dict__)
    new._iterator = None
    return new


class Skipping(Sampler[Any]):
    """A sampler that leaves some elements out; its other attributes are those of the wrapped one.

    Args:
        batch_sampler: The wrapped sampler.
        skip_batches: The number of elements that are left out.
        start: The index of the first of them.
        on_skipped: Called before the first element is yielded, after it was drawn.
    """

    def __init__(
        self,
        batch_sampler: Any,
        skip_batches: int = 0,
        start: int = 0,
        on_skipped: Callable[[], None] | None = None,
    ) -> None:
        self.batch_sampler = batch_sampler
        self.skip_batches = skip_batches
        self.start = start
        self.on_skipped = on_skipped

    def __iter__(self) -> Iterator[Any]:
        elements = without(iter(self.batch_sampler), self.start, self.start + self.skip_batches)
        return elements if self.on_skipped is None else _announced(elements, self.on_skipped)

    def __len__(self) -> int:
        length = self.total_length
        return min(length, self.start) + max(0, length - self.start - self.skip_batches)

    @property
    def total_length(self) -> int:
        """The number of elements before some are left out."""
        return len(self.batch_sampler)

    def __getattr__(self, name: str) -> Any:
        if name == "batch_sampler" or name.startswith("__"):  # the object is being unpickled
            raise AttributeError(name)
        return getattr(self.batch_sampler, name)


class SkipBatchSampler(Skipping, BatchSampler):
    """A batch sampler without the first batches of another; see `Skipping`."""


def _announced(elements: Iterator[Any], on_first: Callable[[], None]) -> Iterator[Any]:
    for first in elements:
        on_first()
        yield first
        break
    yield from elements


def without(elements: Iterator[Any], start: int, stop: int) -> Iterator[Any]:
    """The elements before `start`, and those from `stop` on."""
    return itertools.chain(itertools.islice(elements, start), itertools.islice(elements, stop - start, None))
