"""The loop over `Accelerator.epochs` of a launch that has no folder for checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from notebook_accel.events.control import CHECKPOINT
from notebook_accel.train.accelerator.controlled import controlled

_NO_FOLDER = "the launch has no folder for checkpoints: pass checkpoint="


class PlainLoop:
    """A `ControlledLoop` that only counts; see `Accelerator.epochs`.

    Args:
        count: The number of epochs.
    """

    def __init__(self, count: int) -> None:
        self.refusals = {CHECKPOINT: _NO_FOLDER}
        self._count = count
        self._epoch = 0
        self._is_last = False

    def epochs(self) -> Iterator[int]:
        """Yields the epochs, up to the last one, or the one after which the user ends the loop."""
        with controlled(self):
            for epoch in range(self._count):
                self._epoch = epoch
                yield epoch
                if self._is_last:
                    return

    # For the controls

    def request_checkpoint(self, then: Callable[[str, str], None]) -> None:
        then("", _NO_FOLDER)

    def end_after_epoch(self) -> str:
        self._is_last = True
        return f"epoch {self._epoch + 1} of {self._count}"

    def must_run(self) -> bool:
        return False
