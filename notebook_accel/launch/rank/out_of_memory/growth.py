"""Notices when a process has grown so large that the system may end it, which leaves no time to look for the reason."""

from __future__ import annotations

import sys
from types import FrameType

from notebook_accel.events import LargestArrays
from notebook_accel.launch.rank.out_of_memory import live_arrays
from notebook_accel.launch.rank.stacks import stack_sampler
from notebook_accel.launch.system import limits

_SHARE = 0.2
"""The share of the memory that was free at first from which on a process is large."""
_GROWTH = 1.2
"""How much it has to grow until it is looked at again."""


class Growth:
    """Looks at the frames of a rank's main thread, from another thread, each time that the process has grown.

    Args:
        main_ident: The thread.
        free: Bytes that are free now; by default, what the system or the container has.
    """

    def __init__(self, main_ident: int, free: int | None = None) -> None:
        self._main_ident = main_ident
        self._free = free
        self._next: float | None = None
        """The size from which on it is looked at."""

    def sample(self, resident: int) -> list[LargestArrays]:
        """The largest tensors and arrays, if the process has grown."""
        if self._next is None:
            self._next = _SHARE * (limits.free_memory() if self._free is None else self._free)
        if resident < self._next:
            return []
        self._next = _GROWTH * resident
        try:
            found = live_arrays.largest(_stack(self._main_ident), nameless=False)
        except Exception:  # the user's code keeps running, and may change what is looked at
            return []
        return [LargestArrays(found, resident)] if found else []


def _stack(ident: int) -> list[tuple[FrameType, int]]:
    frame = stack_sampler.current_frames().get(ident)
    return [] if frame is None else [(each, each.f_lineno or 0) for each in stack_sampler.innermost(frame, sys.maxsize)]
