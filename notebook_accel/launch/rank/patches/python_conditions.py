"""Keeps an interrupt from making later notifications of a `threading.Condition` get lost.

An interrupt can end `Condition.notify` after it has released a waiter and before it has removed it from the list. If
that thread waits again, the next `notify` releases what is left of its first wait, and the thread sleeps on. So a
DataLoader that was interrupted while it sent indices can't tell its workers to end, and waits five seconds for them:
what it puts into a `multiprocessing.Queue` is sent by such a thread. https://github.com/python/cpython/issues/92530
mends this for a thread that has not yet woken.
"""

from __future__ import annotations

import threading


def install() -> None:
    """Replaces `Condition.notify`, also for the conditions that exist already."""
    threading.Condition.notify = _notify  # type: ignore[method-assign]


def _notify(self: threading.Condition, n: int = 1) -> None:
    """Wakes up at most n of the threads that wait for the condition; raises RuntimeError if it is not acquired."""
    if not self._is_owned():  # type: ignore[attr-defined]
        raise RuntimeError("cannot notify on un-acquired lock")
    waiters = self._waiters  # type: ignore[attr-defined]
    while waiters and n > 0:
        waiter = waiters[0]
        try:
            waiter.release()
            n -= 1
        except RuntimeError:
            pass  # released before, and not removed
        finally:  # and no Python function is called from here on, at whose start an interrupt could arrive
            if waiter in waiters:  # else the thread's time is up, and it has removed itself
                waiters.remove(waiter)
