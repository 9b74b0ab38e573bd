"""Which optimizer a training loop's steps are counted by, if it has several."""

from __future__ import annotations


class CountedOptimizer:
    """A loop counts by the first optimizer that steps; by another once that one steps twice without the first."""

    __slots__ = ("_counted", "_other")

    def __init__(self) -> None:
        self._counted = self._other = 0
        """The `id` of the optimizer whose steps are counted, and of another that has stepped since."""

    def ends_step(self, optimizer: object) -> bool:
        """Whether a step of the loop ends, now that this optimizer has stepped."""
        key = id(optimizer)
        if key != self._counted:
            if self._counted and key != self._other:
                self._other = key
                return False
            self._counted = key
        self._other = 0
        return True
