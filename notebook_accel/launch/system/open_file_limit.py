"""Raises the limit of open files of a process, which is 1,024 by default on most systems. Each socket counts."""

from __future__ import annotations

import contextlib
import os
import resource

from notebook_accel.errors import LaunchError

_SPARE = 64
"""Files in addition to those that ranks need."""


def check(count: int) -> None:
    """Checks that this process can have `count` more open files.

    Raises:
        LaunchError: It may not.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _open_files() + count
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise LaunchError(
            f"this many ranks need {needed} open files in one process, but the system allows {hard}: raise the hard "
            "limit (ulimit -Hn, or LimitNOFILE= of the service that runs Jupyter), close files that this process no "
            "longer needs, or launch fewer"
        )


def raise_limit(count: int) -> None:
    """Raises this process's soft limit of open files, which is often 1024, if `count` more files need it.

    Raises:
        LaunchError: It may not be raised that far.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _open_files() + count + _SPARE
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    check(count)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (needed if hard == resource.RLIM_INFINITY else min(needed, hard), hard)
        )


def _open_files() -> int:
    """How many files this process has open."""
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:  # not even the folder can be opened
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_to_hard_limit() -> None:
    """Raises the limit as far as possible, for a process that does not know how many others will connect to it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS names a limit that it does not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
