"""Why a call is stopped, how a request to stop reaches the driver, and which signals the ranks get and when.

`_ESCALATION` sets the times for SIGINT, SIGTERM and SIGKILL; `escalation.py` sends them.
"""

from __future__ import annotations

import contextlib
import enum
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FrameType

from notebook_accel.launch.wire.constants import GRACE, PREEMPTION_GRACE, SCRIPT_GRACE


class StopReason(enum.Enum):
    """Why the ranks are stopped."""

    INTERRUPT = "interrupted"
    CANCEL = "cancelled"
    FAILURE = "a rank failed"
    DEATH = "a rank died"
    TIMEOUT = "out of time"
    PREEMPTION = "SIGTERM"
    TERMINATION = "terminated"
    HANGUP = "hung up"
    QUIT = "quit"


REQUESTED = (
    StopReason.INTERRUPT,
    StopReason.CANCEL,
    StopReason.TERMINATION,
    StopReason.HANGUP,
    StopReason.QUIT,
)
"""The reasons that are the user's, after which ranks that end have not failed."""


class StopAction(enum.Enum):
    """Steps for persistent ranks, other than signals."""

    PREEMPT = "preempt"  # make a training run end after its next step, with a checkpoint
    DISCONNECT = "disconnect"  # cut their connections to each other, so that no rank waits in a collective forever
    GIVE_UP = "give up"  # stop waiting for them, and let them run on


Steps = Sequence[tuple[float, signal.Signals | StopAction]]
"""Seconds since the shutdown began, and what then happens to the ranks that have not finished."""


@dataclass(frozen=True)
class StopPolicy:
    """How ranks are stopped, and whether they exit when their call is over."""

    ranks_exit: bool
    """The ranks exit when the call is over, as opposed to persistent ranks."""
    steps: Mapping[StopReason, Steps]
    on_second_request: Steps
    """The steps for a second request to stop."""
    second_request_text: str
    """The effect of a second request, as it completes the notice "interrupt again to …"."""
    last_resort: signal.Signals = signal.SIGTERM
    """What ends a rank that waits for one that has exited."""


_ESCALATION: Mapping[StopReason, Steps] = {
    StopReason.PREEMPTION: ((0.0, StopAction.PREEMPT), (PREEMPTION_GRACE, signal.SIGKILL)),
    StopReason.INTERRUPT: ((0.0, signal.SIGINT), (GRACE, signal.SIGTERM), (GRACE + 1.0, signal.SIGKILL)),
    StopReason.CANCEL: ((0.0, signal.SIGINT), (GRACE, signal.SIGTERM), (GRACE + 1.0, signal.SIGKILL)),
    # Give ranks that wait for the failed one time to report where, which makes the error clearer.
    StopReason.FAILURE: ((1.0, signal.SIGTERM), (1.5, signal.SIGKILL)),
    # A dead rank is the cause, whatever the others report; half the time is enough for them to notice lost connections.
    StopReason.DEATH: ((0.5, signal.SIGTERM), (1.0, signal.SIGKILL)),
    # At most the time that the ranks need to send their stacks; `Shutdown.skip_wait` cuts it short.
    StopReason.TIMEOUT: ((1.5, signal.SIGTERM), (2.5, signal.SIGKILL)),
}
ONE_CALL = StopPolicy(
    ranks_exit=True, steps=_ESCALATION, on_second_request=((0.0, signal.SIGKILL),), second_request_text="kill them now"
)
"""For ranks that are started for one call."""
RESUMABLE = replace(
    ONE_CALL,
    last_resort=signal.SIGKILL,
    steps={
        reason: [(at, signal.SIGKILL if step is signal.SIGTERM else step) for at, step in steps]
        for reason, steps in _ESCALATION.items()
    },
)
"""For such ranks whose training saves checkpoints: after a SIGTERM, it would run on to the end of its step."""

SCRIPT = replace(
    ONE_CALL,
    steps={
        StopReason.TIMEOUT: ((1.5, signal.SIGTERM), (SCRIPT_GRACE, signal.SIGKILL)),
        **{
            reason: ((0.0, signum), (SCRIPT_GRACE, signal.SIGKILL))
            for reason, signum in {
                StopReason.INTERRUPT: signal.SIGINT,
                StopReason.CANCEL: signal.SIGINT,
                StopReason.TERMINATION: signal.SIGTERM,
                StopReason.HANGUP: signal.SIGHUP,
                StopReason.QUIT: signal.SIGQUIT,
                StopReason.FAILURE: signal.SIGTERM,
                StopReason.DEATH: signal.SIGTERM,
            }.items()
        },
    },
)
"""For ranks that run a script: they get the signal that this process has got, as from torch's launcher."""

_INTERRUPT_PERSISTENT: Steps = ((0.0, signal.SIGINT), (0.5, StopAction.DISCONNECT), (GRACE, StopAction.GIVE_UP))
PERSISTENT = StopPolicy(
    ranks_exit=False,
    steps={
        StopReason.INTERRUPT: _INTERRUPT_PERSISTENT,
        StopReason.CANCEL: _INTERRUPT_PERSISTENT,
        StopReason.FAILURE: ((1.0, signal.SIGINT), (1.5, StopAction.DISCONNECT), (1.0 + GRACE, StopAction.GIVE_UP)),
        StopReason.DEATH: ((0.5, signal.SIGINT), (1.0, StopAction.DISCONNECT), (0.5 + GRACE, StopAction.GIVE_UP)),
    },
    on_second_request=((0.0, StopAction.GIVE_UP),),
    second_request_text="wait no longer",
)
"""For persistent ranks, which keep their variables, so they are interrupted but never killed."""


class StopRequests:
    """Requests to stop, from a signal handler or another thread, to the thread that runs the call.

    No lock is taken: the signal handler may run while its own thread holds it.
    """

    def __init__(self) -> None:
        self._reasons: list[StopReason] = []
        self._listener: Callable[[], object] | None = None

    def submit(self, reason: StopReason) -> None:
        """Requests a stop; the second request stops at once. Safe in a signal handler."""
        self._reasons.append(reason)
        if (listener := self._listener) is not None:
            listener()

    def listen(self, listener: Callable[[], object] | None) -> None:
        """Has each request call a function on its own thread, and at once if there was one; `None` ends that."""
        self._listener = listener
        if listener is not None and self._reasons:
            listener()

    @property
    def received(self) -> Sequence[StopReason]:
        """The reasons of all requests so far, the oldest first."""
        return tuple(self._reasons)


@contextlib.contextmanager
def catch_sigterm(requests: StopRequests, reason: StopReason = StopReason.PREEMPTION) -> Iterator[None]:
    """Turns SIGTERM into one request, by default to end the training with a checkpoint; it takes effect afterwards.

    Further SIGTERMs do nothing: a supervisor may signal a process and its control group, or its parent too.

    Does nothing off the main thread, or where the process has a handler of its own.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    received = []

    def on_terminate(signum: int, frame: FrameType | None) -> None:
        del frame
        received.append(signum)
        if len(received) == 1:
            requests.submit(reason)

    signal.signal(signal.SIGTERM, on_terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if received:
            os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def catch_sigint(requests: StopRequests) -> Iterator[None]:
    """Turns SIGINT into requests to stop. Does nothing off the main thread, where Python delivers no signal.

    `KeyboardInterrupt` could be raised between any two instructions, and would leave a message half read.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_interrupt(signum: int, frame: FrameType | None) -> None:
        del signum, frame
        requests.submit(StopReason.INTERRUPT)

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        # `None` means that the previous handler was not installed by Python, so it can't be restored.
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
