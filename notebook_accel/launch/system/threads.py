"""Starts threads in the background, which the system may refuse as it may refuse processes."""

from __future__ import annotations

import contextvars
import errno
import threading
from collections.abc import Callable

from notebook_accel.errors import LaunchError
from notebook_accel.launch.system.limits import explain_refusal


def start(target: Callable[[], object], name: str) -> threading.Thread:
    """Starts a thread that this process doesn't wait for at its end, and whose output appears below the current cell.

    Raises:
        LaunchError: The system allows no further thread.
    """
    context = contextvars.copy_context()  # has the cell's header
    thread = threading.Thread(target=context.run, args=(target,), name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        why = explain_refusal(OSError(errno.EAGAIN, str(error)))
        raise LaunchError(f"what runs in the background needs a thread: {why}") from error
    return thread


def start_if_allowed(target: Callable[[], object], name: str) -> threading.Thread | None:
    """Starts such a thread, or returns `None` if the system allows no further one.

    For work that its caller can also do itself, or later, or not at all.
    """
    try:
        return start(target, name)
    except LaunchError:
        return None
