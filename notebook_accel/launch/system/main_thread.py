"""Signals while the main thread waits for the user."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def raise_on_sigint() -> Iterator[None]:
    """Makes SIGINT raise `KeyboardInterrupt` while the main thread waits for user input, whatever handles it otherwise.

    Does nothing off the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
