"""How a running launch is told to stop, and how ranks are made to."""

from __future__ import annotations

import contextlib
import enum
import signal
import socket
import threading
from collections.abc import Iterator
from types import FrameType

GRACE = 5.0
"""Seconds that a rank has to end by itself after an interrupt, for instance to save."""


class Reason(enum.Enum):
    """Why the ranks are made to end."""

    INTERRUPT = "interrupted"
    CANCEL = "cancelled"
    FAILURE = "a rank failed"
    TIMEOUT = "out of time"


# The steps of each reason: seconds after its beginning, and the signal that is then sent to whoever is left.
LADDERS = {
    Reason.INTERRUPT: ((0.0, signal.SIGINT), (GRACE, signal.SIGTERM), (GRACE + 1.0, signal.SIGKILL)),
    Reason.CANCEL: ((0.0, signal.SIGINT), (GRACE, signal.SIGTERM), (GRACE + 1.0, signal.SIGKILL)),
    # Whoever waits for the rank that failed gets the time to say so; the error is clearer for it.
    Reason.FAILURE: ((1.0, signal.SIGTERM), (1.5, signal.SIGKILL)),
    # Time for the ranks to write where they are.
    Reason.TIMEOUT: ((0.5, signal.SIGTERM), (1.5, signal.SIGKILL)),
}
AT_ONCE = ((0.0, signal.SIGKILL),)


class StopRequests:
    """Requests to stop, from a signal handler or another thread, to the thread that runs the launch."""

    def __init__(self) -> None:
        self._heard, self._asked = socket.socketpair()
        self._heard.setblocking(False)
        self._asked.setblocking(False)
        self._given: list[Reason] = []

    def fileno(self) -> int:
        """Readable after a request."""
        return self._heard.fileno()

    def ask(self, reason: Reason) -> None:
        """Asks to stop; for the second time: at once. Safe in a signal handler."""
        self._given.append(reason)
        with contextlib.suppress(OSError):  # it is all over, or there are many requests already
            self._asked.send(b".")

    def take(self) -> list[Reason]:
        """Every request so far, the oldest first."""
        with contextlib.suppress(BlockingIOError):
            while self._heard.recv(64):
                pass
        return list(self._given)

    def close(self) -> None:
        self._heard.close()
        self._asked.close()


@contextlib.contextmanager
def interrupts(requests: StopRequests) -> Iterator[None]:
    """Turns SIGINT into requests, on the main thread; elsewhere an interrupt is not for us.

    `KeyboardInterrupt` could come up between any two instructions, and would leave a message half read.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_interrupt(signum: int, frame: FrameType | None) -> None:
        del signum, frame
        requests.ask(Reason.INTERRUPT)

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        # `None`: what was installed before is not Python's, and can't be put back.
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
