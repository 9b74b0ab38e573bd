"""Kills what ranks have left behind if kernel, keeper, and server were killed at once, so that nothing adopted it.

The processes that ranks start inherit a variable that names their server's kernel. The next keeper looks for those
whose kernel has ended. It doesn't find a process that has removed the variable from its environment, nor one that has
been forked without a new program, since the system shows the environment that a program began with.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator

from notebook_accel.launch.wire.constants import RANK_MARK
from notebook_accel.owner import Owner


def mark(kernel: int) -> dict[str, str]:
    """What to add to the environment of the ranks of a kernel, which must exist."""
    if sys.platform != "linux":
        return {}
    return {RANK_MARK: str(Owner.of(kernel))}


def kill() -> None:
    """Kills the abandoned processes of this user, and those that they start in the meantime."""
    while [pid for pid in _processes() if _kill_if_abandoned(pid)]:
        pass


def _processes() -> Iterator[int]:
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdecimal() and os.stat(f"/proc/{name}").st_uid == os.geteuid():
                yield int(name)


def _kill_if_abandoned(pid: int) -> bool:
    try:
        process = os.pidfd_open(pid)  # so that the signal reaches no later process with the same ID
    except OSError:
        return False
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
        value = next((each.decode() for each in variables if each.startswith(f"{RANK_MARK}=".encode())), "")
        if not value or not _has_ended(value.partition("=")[2]):
            return False
        signal.pidfd_send_signal(process, signal.SIGKILL)
    except (OSError, ValueError):  # another process's, just ended, or with a value of someone else's making
        return False
    finally:
        os.close(process)
    return True


def _has_ended(value: str) -> bool:
    owner = Owner.parse(value)
    return owner.is_local and not owner.is_alive()
