"""How a running launch is told to stop, and how ranks are made to."""

from __future__ import annotations

import contextlib
import enum
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType

GRACE = 5.0
"""Seconds that a rank has to end by itself after an interrupt, for instance to save."""


class Reason(enum.Enum):
    """Why the ranks are made to end."""

    INTERRUPT = "interrupted"
    CANCEL = "cancelled"
    FAILURE = "a rank failed"
    DEATH = "a rank died"
    TIMEOUT = "out of time"


class Act(enum.Enum):
    """What is done to ranks that are to live on, beside sending them signals."""

    DISCONNECT = "disconnect"  # cut their connections to each other, so that none waits in a collective for ever
    GIVE_UP = "give up"  # wait for them no longer, and leave them to what they do


Steps = Sequence[tuple[float, signal.Signals | Act]]
"""Seconds after the beginning, and what is then done to whoever is left."""


@dataclass(frozen=True)
class Life:
    """What the end of a call means to the ranks that run it."""

    ends: bool
    """They end with the call."""
    steps: Mapping[Reason, Steps]
    at_once: Steps
    """What is done when somebody asks to stop for the second time."""
    again: str
    """The same in words."""


_LADDERS: Mapping[Reason, Steps] = {
    Reason.INTERRUPT: ((0.0, signal.SIGINT), (GRACE, signal.SIGTERM), (GRACE + 1.0, signal.SIGKILL)),
    Reason.CANCEL: ((0.0, signal.SIGINT), (GRACE, signal.SIGTERM), (GRACE + 1.0, signal.SIGKILL)),
    # Whoever waits for the rank that failed gets the time to say so; the error is clearer for it.
    Reason.FAILURE: ((1.0, signal.SIGTERM), (1.5, signal.SIGKILL)),
    # A death is the cause, whatever the others say: half the time, in which those that have lost a connection notice.
    Reason.DEATH: ((0.5, signal.SIGTERM), (1.0, signal.SIGKILL)),
    # Time for the ranks to tell where they are, at most.
    Reason.TIMEOUT: ((1.5, signal.SIGTERM), (2.5, signal.SIGKILL)),
}
ONE_CALL = Life(ends=True, steps=_LADDERS, at_once=((0.0, signal.SIGKILL),), again="kill them now")
"""Ranks that are started for one call."""

_INTERRUPTED: Steps = ((0.0, signal.SIGINT), (0.5, Act.DISCONNECT), (GRACE, Act.GIVE_UP))
KEPT = Life(
    ends=False,
    steps={
        Reason.INTERRUPT: _INTERRUPTED,
        Reason.CANCEL: _INTERRUPTED,
        Reason.FAILURE: ((1.0, signal.SIGINT), (1.5, Act.DISCONNECT), (1.0 + GRACE, Act.GIVE_UP)),
        Reason.DEATH: ((0.5, signal.SIGINT), (1.0, Act.DISCONNECT), (0.5 + GRACE, Act.GIVE_UP)),
    },
    at_once=((0.0, Act.GIVE_UP),),
    again="wait no longer",
)
"""Ranks that live on, and keep what they know."""


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
def raising() -> Iterator[None]:
    """Within `interrupts`: has SIGINT raise `KeyboardInterrupt` after all, where the main thread waits for a person."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


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
