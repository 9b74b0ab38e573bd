"""Calls of the C library: end a process with its parent, and buffer C code's output by line."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_library = ctypes.CDLL(None)
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_LINE_BUFFERED = 1  # _IOLBF


def die_with_parent(parent: int) -> None:
    """Makes the system kill this process when its parent ends; exits at once if the parent has already ended.

    The signal is sent when the parent's *thread* ends that forked, so the parent must have a single thread. It survives
    `exec`.
    """
    if sys.platform == "linux":
        _library.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


def signal_at_end_of_parent(signum: int) -> None:
    """Makes the system send this process a signal whenever its parent, or the thread that forked it, ends."""
    if sys.platform == "linux":
        _library.prctl(_PARENT_DEATH_SIGNAL, signum, 0, 0, 0)


def outlive_parent() -> None:
    """Undoes `die_with_parent`."""
    if sys.platform == "linux":
        _library.prctl(_PARENT_DEATH_SIGNAL, 0, 0, 0, 0)


def flush() -> None:
    """Writes out what C code has buffered."""
    _library.fflush(None)


def line_buffer_c_stdout() -> None:
    """Makes C code flush standard output at each line, even though it is a pipe."""
    if sys.platform == "linux":
        _library.setvbuf(ctypes.c_void_p.in_dll(_library, "stdout"), None, _LINE_BUFFERED, 0)
