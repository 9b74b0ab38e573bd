"""Reads what is long for a limited time at each call, so that a process that answers requests is not held up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

_CLOCK_EVERY = 16
"""Items between two looks at the clock."""


class Slices:
    """Goes through items, and continues at the next call where the time was over.

    Args:
        begin: Begins to go through them; what is done with an item is done before the next one is requested.
    """

    def __init__(self, begin: Callable[[], Iterable[object]]) -> None:
        self._begin = begin
        self._left: Iterator[object] | None = None

    @property
    def is_behind(self) -> bool:
        """Whether the last call did not come to the end."""
        return self._left is not None

    def read(self, deadline: float) -> bool:
        """Continues; returns whether it came to the end, which it may not have at `deadline`, a monotonic time.

        After an exception, which is that of an item, the next call begins again.
        """
        left = iter(self._begin()) if self._left is None else self._left
        self._left = None
        for number, _ in enumerate(left, 1):
            if number % _CLOCK_EVERY == 0 and time.monotonic() > deadline:
                self._left = left
                return False
        return True
