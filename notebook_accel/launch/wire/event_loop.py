"""The event loop of this package's processes: waits for sockets and pipes, with throttling, and for timers.

On a busy machine, a process that wakes up finds its CPU caches cold, which costs several times as much as the work
itself. Sources that carry only progress are therefore read together, at intervals, and everything else at once.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable

from notebook_accel.launch.wire.stream import HasFileno

Source = int | HasFileno

THROTTLE, MAX_THROTTLE = 0.002, 0.1
"""Seconds between two reads of the throttled sources: an amount for each rank, up to a maximum for all."""
UNTHROTTLED = 1.0
"""Seconds from the start of a call during which nothing is throttled. Most launches are over by then."""


class EventLoop:
    """Calls the callback of each source that is readable, and of each timer that is due, on one thread."""

    def __init__(
        self, *, throttle: float = THROTTLE, max_throttle: float = MAX_THROTTLE, unthrottled: float = UNTHROTTLED
    ) -> None:
        self._throttle, self._max_throttle, self._unthrottled = throttle, max_throttle, unthrottled
        self._poll_all = select.poll()
        self._poll_immediate = select.poll()
        self._callbacks: dict[int, Callable[[], object]] = {}
        """By file descriptor."""
        self._descriptors: dict[Source, int] = {}
        self._throttled: dict[int, int] = {}
        """The number of ranks whose events arrive at each throttled descriptor."""
        self._throttled_until = 0.0
        """When the throttled sources are read next."""
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._timer_numbers = itertools.count()
        self.unthrottle()

    def register(self, source: Source, callback: Callable[[], object]) -> None:
        """Calls `callback` as soon as the source is readable."""
        self._poll_immediate.register(self._add(source, callback), select.POLLIN)

    def register_throttled(self, source: Source, callback: Callable[[], bool], *, ranks: int = 1) -> None:
        """Calls `callback` when the source is readable, or later; it returns whether the next read may wait."""
        self._throttled[self._add(source, callback)] = ranks

    def _add(self, source: Source, callback: Callable[[], object]) -> int:
        descriptor = source if isinstance(source, int) else source.fileno()
        self._descriptors[source] = descriptor
        self._callbacks[descriptor] = callback
        self._poll_all.register(descriptor, select.POLLIN)
        return descriptor

    def unregister(self, source: Source) -> None:
        """Removes the source, if it is registered. To be called before the source is closed."""
        descriptor = self._descriptors.pop(source, None)
        if descriptor is None:
            return
        del self._callbacks[descriptor]
        self._poll_all.unregister(descriptor)
        if self._throttled.pop(descriptor, None) is None:
            self._poll_immediate.unregister(descriptor)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> None:
        """Calls `callback` once, after `seconds`."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._timer_numbers), callback))

    def unthrottle(self) -> None:
        """Reads everything at once for a while, because a call starts or ends."""
        self._unthrottled_until = time.monotonic() + self._unthrottled
        self._throttled_until = 0.0

    def run_once(self, timeout: float = math.inf) -> bool:
        """Waits until a source is readable or a timer is due, for at most `timeout` seconds; calls the callbacks.

        Returns:
            Whether there were any.
        """
        now = time.monotonic()
        if self._timers:
            timeout = max(0.0, min(timeout, self._timers[0][0] - now))
        left = self._throttled_until - now
        if left > 0:
            found = self._dispatch(self._poll_immediate, min(left, timeout))
        else:
            found = self._dispatch(self._poll_all, timeout)
            now = time.monotonic()
            if now >= self._unthrottled_until and False not in found:
                self._throttled_until = now + min(self._max_throttle, self._throttle * sum(self._throttled.values()))
        return self._call_timers() or bool(found)

    def _dispatch(self, poll: select.poll, timeout: float) -> list[object]:
        ready = poll.poll(None if timeout == math.inf else timeout * 1000)
        return [callback() for descriptor, _ in ready if (callback := self._callbacks.get(descriptor)) is not None]

    def _call_timers(self) -> bool:
        now = time.monotonic()
        due = []
        while self._timers and self._timers[0][0] <= now:
            due.append(heapq.heappop(self._timers)[2])
        for callback in due:
            callback()
        return bool(due)


class Calls:
    """Has an event loop call functions for other threads and for signal handlers, in their order.

    Args:
        loop: Calls them, on its thread.
    """

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], object]] = deque()
        self._wakeup = Wakeup()
        loop.register(self._wakeup, self._run)

    def add(self, function: Callable[[], object]) -> None:
        """Calls a function soon. Any thread may call this at any time; it does nothing once this is closed."""
        self._waiting.append(function)
        self._wakeup.wake()

    def close(self) -> None:
        """Calls nothing more."""
        self._waiting.clear()
        self._loop.unregister(self._wakeup)
        self._wakeup.close()

    def _run(self) -> None:
        self._wakeup.clear()
        while self._waiting:
            self._waiting.popleft()()


class Wakeup:
    """Becomes readable once another thread calls `wake`.

    It takes no lock, since a signal handler may run while its own thread holds it. Nor does it write to a descriptor by
    its number, which may belong to another file once this is closed.
    """

    def __init__(self) -> None:
        self._read_end, self._write_end = socket.socketpair()
        self._read_end.setblocking(False)
        self._write_end.setblocking(False)

    def fileno(self) -> int:
        return self._read_end.fileno()

    def wake(self) -> None:
        """Makes it readable. Any thread may call this at any time; it does nothing once this is closed."""
        with contextlib.suppress(OSError):  # it is closed, or so full that it is readable anyway
            self._write_end.send(b"+")

    def wake_on_signals(self) -> None:
        """Has each signal that this process handles make it readable, also one that comes just before a wait."""
        signal.set_wakeup_fd(self._write_end.fileno(), warn_on_full_buffer=False)

    def clear(self) -> None:
        """Makes it unreadable until the next `wake`."""
        with contextlib.suppress(BlockingIOError):
            while self._read_end.recv(4096):
                pass

    def close(self) -> None:
        self._read_end.close()
        self._write_end.close()
