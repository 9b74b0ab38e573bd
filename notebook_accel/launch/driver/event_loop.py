"""The event loop of a call, with throttled sources.

On a busy machine, a process that wakes up finds its CPU caches cold, which costs several times as much as the work
itself. Channels that carry only progress are therefore read together, at intervals, and everything else at once.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable

from notebook_accel.launch.wire.stream import HasFileno

Source = int | HasFileno

THROTTLE, MAX_THROTTLE = 0.002, 0.1
"""Seconds between two reads of the throttled sources: an amount for each source, up to a maximum for all."""
UNTHROTTLED = 1.0
"""Seconds from the start during which nothing is throttled. Most launches are over by then."""


class EventLoop:
    """Calls the callback of each source that is readable.

    Uses `poll`, whose set-up costs nothing, unlike epoll's: each cell that the ranks run has a loop of its own.
    """

    def __init__(
        self, *, throttle: float = THROTTLE, max_throttle: float = MAX_THROTTLE, unthrottled: float = UNTHROTTLED
    ) -> None:
        self._throttle, self._max_throttle = throttle, max_throttle
        self._poll_all = select.poll()
        self._poll_immediate = select.poll()
        self._callbacks: dict[int, Callable[[], object]] = {}
        """By file descriptor."""
        self._descriptors: dict[Source, int] = {}
        self._throttled: set[int] = set()
        self._unthrottled_until = time.monotonic() + unthrottled
        self._throttled_until = 0.0
        """When the throttled sources are read next."""

    def register(self, source: Source, callback: Callable[[], object]) -> None:
        """Calls `callback` as soon as the source is readable."""
        self._poll_immediate.register(self._add(source, callback), select.POLLIN)

    def register_throttled(self, source: Source, callback: Callable[[], bool]) -> None:
        """Calls `callback` when the source is readable, or later; it returns whether the next read may wait."""
        self._throttled.add(self._add(source, callback))

    def _add(self, source: Source, callback: Callable[[], object]) -> int:
        descriptor = source if isinstance(source, int) else source.fileno()
        self._descriptors[source] = descriptor
        self._callbacks[descriptor] = callback
        self._poll_all.register(descriptor, select.POLLIN)
        return descriptor

    def unregister(self, source: Source) -> None:
        """Removes the source, if it is registered."""
        descriptor = self._descriptors.pop(source, None)
        if descriptor is None:
            return
        del self._callbacks[descriptor]
        self._poll_all.unregister(descriptor)
        if descriptor not in self._throttled:
            self._poll_immediate.unregister(descriptor)

    def run_once(self, timeout: float) -> None:
        """Waits until a source is readable, for at most `timeout` seconds, and calls the callbacks."""
        left = self._throttled_until - time.monotonic()
        if left > 0:
            self._dispatch(self._poll_immediate, min(left, timeout))
            return
        may_wait = self._dispatch(self._poll_all, timeout)
        now = time.monotonic()
        if now >= self._unthrottled_until and False not in may_wait:
            self._throttled_until = now + min(self._max_throttle, self._throttle * len(self._throttled))

    def _dispatch(self, poll: select.poll, timeout: float) -> list[object]:
        ready = poll.poll(timeout * 1000)
        return [callback() for descriptor, _ in ready if (callback := self._callbacks.get(descriptor)) is not None]
