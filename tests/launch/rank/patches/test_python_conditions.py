"""That a thread is woken though an interrupt came while it was notified before."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

from notebook_accel import notebook_launcher


class InterruptedWaiter:
    """The lock of a thread that waits; an interrupt arrives when it has been released for the first time."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self.is_interrupted = False

    def release(self) -> None:
        self.lock.release()
        if not self.is_interrupted:
            self.is_interrupted = True
            signal.raise_signal(signal.SIGINT)


def wake_twice() -> bool:
    """On a rank: whether a thread that waits again is woken by the notification after the one that was interrupted."""
    condition = threading.Condition()
    woken = [threading.Event(), threading.Event()]

    def wait() -> None:
        with condition:
            for each in woken:
                condition.wait()
                each.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    _await_waiter(condition)
    with condition:
        condition._waiters[0] = InterruptedWaiter(condition._waiters[0])  # type: ignore[attr-defined]
        with pytest.raises(KeyboardInterrupt):
            condition.notify()
    woken[0].wait()
    _await_waiter(condition)
    with condition:
        condition.notify()
    return woken[1].wait(5)


def _await_waiter(condition: threading.Condition) -> None:
    while True:
        with condition:
            if condition._waiters:  # type: ignore[attr-defined]
                return


def test_a_thread_that_waits_again_is_woken() -> None:
    assert notebook_launcher(wake_twice, num_processes=1, device="cpu") == [True]
