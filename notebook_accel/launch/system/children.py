"""The children of this process, as the system knows them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def adopt_orphans() -> None:
    """Makes this process adopt the processes that its descendants leave behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def find_ended() -> int | None:
    """The ID of a child that has ended and is not reaped, or `None`."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return found.si_pid if found else None


def reap() -> bool:
    """Reaps the children that have ended; returns whether there are others."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def pids() -> list[int]:
    """This process's children, orphans that it has adopted among them."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def shares_session(pid: int) -> bool:
    """Whether a process belongs to the session of this one."""
    try:
        return os.getsid(pid) == os.getsid(0)
    except ProcessLookupError:
        return False


def kill_all() -> None:
    """Kills and reaps all children, and with `adopt_orphans` all descendants."""
    while found := pids():
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
