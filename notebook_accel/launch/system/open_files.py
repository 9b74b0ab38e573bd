"""The files that this process has open, sockets among them, and how many it may have.

The limit is often 1,024 at first, and can be raised.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import socket
import stat
from collections.abc import Iterator

from notebook_accel.errors import LaunchError

ADVICE = (
    "Launch fewer ranks, close files that this process no longer needs, or raise the hard limit (ulimit -Hn, or "
    "LimitNOFILE= of the service that runs Jupyter)."
)
"""What to do where the limit is reached."""
_SPARE = 64
"""Files in addition to those that ranks need."""


def free() -> float:
    """How many more files this process may open, if its soft limit is raised as far as possible."""
    return _hard_limit() - _open_files()


def check(count: int) -> None:
    """Checks that this process can have `count` more open files.

    Raises:
        LaunchError: It may not.
    """
    if count > free():
        raise LaunchError(
            f"this many ranks need {_open_files() + count} open files in one process, but the system allows "
            f"{_hard_limit():.0f}. {ADVICE}"
        )


def raise_limit(count: int) -> None:
    """Raises this process's soft limit of open files, if `count` more files need it.

    Raises:
        LaunchError: It may not be raised that far.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _open_files() + count + _SPARE
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    check(count)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(min(needed, _hard_limit())), hard))


def raise_to_hard_limit() -> None:
    """Raises the limit as far as possible, for a process that does not know how many others will connect to it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS names a limit that it does not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def close_from(first: int) -> None:
    """Closes all descriptors from a number on.

    Unlike `os.closerange`, which on some builds of Python tries every number up to the limit, and in containers that is
    often a billion.
    """
    for number in _numbers():
        if number >= first:
            with contextlib.suppress(OSError):  # that of the listing itself
                os.close(number)


def tcp_sockets() -> Iterator[socket.socket]:
    """Each TCP socket of this process, under its own descriptor, which stays open."""
    for number in _numbers():
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                found = socket.socket(fileno=number)
                try:
                    if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
                        yield found
                finally:
                    found.detach()


def listens(each: socket.socket) -> bool:
    """Whether a socket accepts connections."""
    return bool(each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _hard_limit() -> float:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return math.inf if hard == resource.RLIM_INFINITY else hard


def _open_files() -> int:
    """How many files this process has open."""
    try:
        return len(_numbers())
    except OSError:  # not even the folder can be opened
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _numbers() -> list[int]:
    """Their descriptors."""
    return [int(name) for name in os.listdir("/dev/fd")]
