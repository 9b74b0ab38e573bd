"""Starts threads, which the system may refuse as it may refuse processes."""

from __future__ import annotations

import contextvars
import errno
import threading
from collections.abc import Callable

from notebook_accel.errors import LaunchError
from notebook_accel.launch.system.limits import explain_refusal


def start(target: Callable[[], object], name: str) -> None:
    """Starts a thread that this process doesn't wait for at its end, and whose output appears below the current cell.

    Raises:
        LaunchError: The system allows no further thread.
    """
    context = contextvars.copy_context()  # has the cell's header
    try:
        threading.Thread(target=context.run, args=(target,), name=name, daemon=True).start()
    except RuntimeError as error:
        why = explain_refusal(OSError(errno.EAGAIN, str(error)))
        raise LaunchError(f"what runs in the background needs a thread: {why}") from error
