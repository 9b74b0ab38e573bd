"""What a pump waits for, and how often it looks at what can wait.

Each time that a process wakes among many others costs it several times what it then does: its caches are theirs. So
ranks that tell how far they are, and nothing else, are heard together at a pace.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable

from notebook_accel.launch.wire.stream import HasFileno

Source = int | HasFileno

_PACE, _LONGEST_PACE = 0.002, 0.1
"""Seconds for each of the patient between two times that they are heard, and the most for all of them together."""
_LIVELY = 1.0
"""Seconds from the beginning in which all are heard at once: most launches are over by then."""


class EventLoop:
    """Calls what belongs to each source that has something to be read.

    By `poll`, which costs nothing to set up: one of these is made for each cell that the ranks run.
    """

    def __init__(self) -> None:
        self._all = select.poll()
        self._immediate = select.poll()
        self._callbacks: dict[int, Callable[[], object]] = {}
        """By descriptor."""
        self._descriptors: dict[Source, int] = {}
        self._throttled: set[int] = set()
        self._lively_until = time.monotonic() + _LIVELY
        self._due = 0.0
        """When the patient are heard next."""

    def register(self, source: Source, callback: Callable[[], object]) -> None:
        """Has `heard` called as soon as there is something."""
        self._immediate.register(self._keep(source, callback), select.POLLIN)

    def register_throttled(self, source: Source, callback: Callable[[], bool]) -> None:
        """Has `heard` called, which returns whether it can wait if there is more."""
        self._throttled.add(self._keep(source, callback))

    def _keep(self, source: Source, callback: Callable[[], object]) -> int:
        descriptor = source if isinstance(source, int) else source.fileno()
        self._descriptors[source] = descriptor
        self._callbacks[descriptor] = callback
        self._all.register(descriptor, select.POLLIN)
        return descriptor

    def forget(self, source: Source) -> None:
        """Undoes that, if it was done."""
        descriptor = self._descriptors.pop(source, None)
        if descriptor is None:
            return
        del self._callbacks[descriptor]
        self._all.unregister(descriptor)
        if descriptor not in self._throttled:
            self._immediate.unregister(descriptor)

    def wait(self, timeout: float) -> None:
        """Waits until something has been heard, for at most so many seconds."""
        left = self._due - time.monotonic()
        if left > 0:
            self._dispatch(self._immediate, min(left, timeout))
            return
        answers = self._dispatch(self._all, timeout)
        now = time.monotonic()
        if now >= self._lively_until and False not in answers:
            self._due = now + min(_LONGEST_PACE, _PACE * len(self._throttled))

    def _dispatch(self, poll: select.poll, timeout: float) -> list[object]:
        found = poll.poll(timeout * 1000)
        return [callback() for descriptor, _ in found if (callback := self._callbacks.get(descriptor)) is not None]
