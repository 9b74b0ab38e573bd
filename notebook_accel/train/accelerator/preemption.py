"""Notices that the process is about to be ended, so that a training can save a checkpoint first."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, MutableMapping
from types import FrameType
from typing import Any

from notebook_accel.events.emit import PREEMPTED_BY


def catch_sigterm(space: MutableMapping[str, Any]) -> Callable[[], None]:
    """Makes SIGTERM set `PREEMPTED_BY` in the rank's space instead of ending the process. Returns what undoes that.

    Keeps a handler that the user has installed. Does nothing outside the main thread, which gets all signals.
    """
    on_main_thread = threading.current_thread() is threading.main_thread()
    if not on_main_thread or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        return lambda: None
    own = os.getpid()

    def on_terminate(signum: int, frame: FrameType | None) -> None:
        del frame
        if os.getpid() == own:
            space[PREEMPTED_BY] = "SIGTERM"
        else:  # a child that the user's code has forked
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)

    signal.signal(signal.SIGTERM, on_terminate)

    def restore() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    return restore
