"""Profilers of the user's code. Torch can run only one at a time, and a second one may crash the process."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from typing import Any


def is_active() -> bool:
    """Whether a profiler of torch records, or is about to. Takes some 20 ms, since it looks at all objects."""
    profiler: Any = sys.modules["torch.autograd.profiler"]
    kind = profiler.profile
    return bool(profiler.torch._C._autograd._profiler_enabled()) or any(
        type(found) is kind and found.entered and found.kineto_results is None for found in gc.get_objects()
    )


class Guard:
    """Lets a profiler of the user's code, which begins while ours records, end ours first.

    Args:
        end: Ends ours. Called on the thread that made the guard.
    """

    def __init__(self, end: Callable[[], None]) -> None:
        self._kind: Any = sys.modules["torch.autograd.profiler"].profile
        self._original = self._kind._prepare_trace
        self._end = end
        self._thread = threading.get_ident()

    def __enter__(self) -> Guard:
        def prepare(profiler: Any) -> None:
            if threading.get_ident() != self._thread:
                raise RuntimeError(
                    "torch's profiler can't start on this thread now, because job.profile() records the steps of "
                    "another one: try again once that has ended"
                )
            self._end()
            self._original(profiler)

        self._kind._prepare_trace = prepare
        return self

    def __exit__(self, *_: object) -> None:
        self._kind._prepare_trace = self._original
