"""Controls when SIGINT raises `KeyboardInterrupt` in a rank: never between two calls, and reliably within a call."""

from __future__ import annotations

import signal
import sys
import threading
import time
from typing import Any

_RETRY_AFTER = 0.05
"""Seconds after which an interrupt that was swallowed is raised again."""


def install() -> None:
    """Raises an interrupt again if Python could only print it, because it arrived in a destructor or a C callback."""
    before = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if unraisable.exc_type is not None and issubclass(unraisable.exc_type, KeyboardInterrupt):
            threading.Thread(target=_interrupt, daemon=True).start()
        else:
            before(unraisable)

    sys.unraisablehook = hook


def allow() -> None:
    """From now on an interrupt raises `KeyboardInterrupt` in the main thread, as in any Python program."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def ignore() -> None:
    """From now on an interrupt does nothing. One that arrives while this function runs is dropped too."""
    while True:
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        except KeyboardInterrupt:
            continue
        return


def _interrupt() -> None:
    time.sleep(_RETRY_AFTER)  # Python would drop it once more if it came before the hook has returned
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
