"""Limits how often something costly is done, such as drawing, by its interval, its CPU time and the bytes it sends."""

from __future__ import annotations

import time
from types import TracebackType

SHARE = 0.04
"""The most of a processor's time that drawing takes, of the thread that draws."""
_LONGEST_PAUSE = 1.0
"""Seconds for which a receiver is spared at most: by then there is news that it must not wait for longer."""


class Pacer:
    """`if pacer.is_due(): with pacer: ...` does it every so often, less often where it takes long or sends much."""

    def __init__(self, interval: float, share: float = SHARE, rate: float = float("inf")) -> None:
        self._interval = interval
        self._share = share
        self._rate = rate
        self._due = 0.0
        self._began = 0.0
        self._sent = 0

    def is_due(self) -> bool:
        """Whether enough time has passed since the last time; at first it has."""
        return time.monotonic() >= self._due

    def sent(self, count: int) -> None:
        """Of so many bytes the receiver is to be spared for the time that they take at `rate` bytes a second."""
        self._sent += count

    def __enter__(self) -> None:
        self._began, self._sent = time.thread_time(), 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        elapsed = time.thread_time() - self._began
        pause = min(_LONGEST_PAUSE, self._sent / self._rate)
        self._due = time.monotonic() + max(self._interval, elapsed / self._share, pause)
