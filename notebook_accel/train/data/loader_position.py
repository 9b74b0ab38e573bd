"""A loader's position in its epochs, and the random states that determine the order of an epoch.

The order of samples is drawn when an epoch begins, long before a checkpoint in the middle of the epoch, so a loader
stores the random states of that moment. Resuming sets them while the order is drawn again, and then restores the
current states, so that dropout and the like are not affected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from notebook_accel.train.data.order import State


@dataclass
class Position:
    """Where an interrupted epoch of a loader resumes."""

    passes: int
    """How often its next iterations yield nothing, since they were done."""
    skipped: int
    """The batches of the one after these that were done."""
    on_skipped: Callable[[], None] | None
    """Called before the first of the others is read, for a loader of a map-style dataset."""
    on_resumed: Callable[[], object]
    """Called once it has been read."""


class Progress:
    """The progress of a loader and of the loaders that resume it."""

    def __init__(self) -> None:
        self.epoch = 0
        """The number of finished epochs."""
        self.start: State | None = None
        """The random states at the start of an unfinished epoch."""
        self.interrupted: State | None = None
        """Those of an epoch that was interrupted, from a checkpoint; the next epoch may resume from them."""
        self.is_over = False
        """Whether the restored checkpoint was saved at the end of an epoch, so that no batches are left in it."""
        self.has_workers = False
        """Whether a loader with `persistent_workers` has started them, before this process or in it."""
        self.done = 0
        """In a loop over `Accelerator.epochs`: the batches of the unfinished epoch that were delivered."""
        self.passes = 0
        """Likewise: how often the loader was trained on to its end since the loop's epoch began."""
        self.ahead: State | None = None
        """All random states of this rank from before the next batch was read, which is read one batch ahead."""
        self.saved: State | None = None
        """`in_loop()` of the checkpoint that was loaded, and how many ranks shared its batches."""
        self.position: Position | None = None
        """Where the next epoch resumes; set by the loop over `Accelerator.epochs`."""

    def finish(self) -> None:
        """Records the end of an epoch."""
        self.epoch += 1
        self.start = None
        self.is_over = False

    def begin(self, is_active: bool) -> None:
        """Records that an epoch of the loop over `Accelerator.epochs` begins, perhaps while the loader is iterated."""
        self.passes = 0
        self.ahead = self.position = None
        if not is_active:  # otherwise, its iteration continues in this epoch
            self.done, self.start = 0, None

    def in_loop(self) -> State:
        """What a checkpoint needs to set a `Position`."""
        return {"done": self.done, "passes": self.passes, "ahead": self.ahead}

    def load(self, state: State) -> None:
        """Restores the progress from a checkpoint."""
        self.saved = state.get("loop")
        self.epoch = state["epoch"]
        self.start = None
        self.interrupted = state["start"]
        self.is_over = state["is_over"]
        self.has_workers = state["has_workers"]
