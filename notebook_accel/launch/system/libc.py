"""Calls of the C library: end a process with its parent, buffer C code's output by line, map a file at an address."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys

_library = ctypes.CDLL(None, use_errno=True)
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_LINE_BUFFERED = 1  # _IOLBF
_MAP_FIXED = 0x10  # on Linux and macOS


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


def map_over(address: int, size: int, fd: int) -> None:
    """Maps a file copy-on-write in place of a part of an earlier mapping, with which it is unmapped.

    Raises:
        OSError: The system refuses it.
    """
    call = _library.mmap
    call.restype = ctypes.c_void_p
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
    protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _MAP_FIXED
    if call(address, size, protection, flags, fd, 0) != address:
        code = ctypes.get_errno()
        raise OSError(code, f"a file can't be mapped: {os.strerror(code)}")
