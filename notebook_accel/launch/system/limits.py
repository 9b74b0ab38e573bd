"""How many processes, threads and open files, and how much memory the system grants, and why it refuses one."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import resource
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from notebook_accel.errors import LaunchError

_CGROUPS = Path("/sys/fs/cgroup")
OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")
"""Whether the system promises more memory than it has."""
_STRICT = 2
"""In that file: it does not."""
FILES_ADVICE = (
    "Launch fewer ranks, close files that this process no longer needs, or raise the hard limit (ulimit -Hn, or "
    "LimitNOFILE= of the service that runs Jupyter)."
)
"""What to do where the limit is reached."""
_SPARE = 64
"""Files in addition to those that ranks need."""


def explain_refusal(error: OSError) -> str:
    """Why the system refused to start a process, as far as can be determined, and what to do about it."""
    if error.errno == errno.ENOMEM:
        why = "there is no memory left for it"
        if _number(OVERCOMMIT) == _STRICT:
            why = "the system promises no more memory than it has (vm.overcommit_memory=2)"
        advice = "Launch fewer ranks, free memory in this notebook and others, or allow more (vm.overcommit_ratio)."
    elif error.errno == errno.EAGAIN:
        why = next(_reached_limits(), "a limit of processes is reached")
        advice = "Launch fewer ranks, end processes that are no longer needed, or raise the limit."
    elif error.errno == errno.EMFILE:
        why = f"a process may have {resource.getrlimit(resource.RLIMIT_NOFILE)[0]} (ulimit -n)"
        advice = FILES_ADVICE
    else:
        return str(error)
    return f"{error.strerror}: {why}. {advice}"


def _reached_limits() -> Iterator[str]:
    """The limits of processes that are reached."""
    for folder in cgroups():
        most = _number(folder / "pids.max")
        if _number(folder / "pids.current", 0) >= most:
            yield (
                f"the control group may have {most:.0f} processes and threads (pids.max in {folder}; --pids-limit of "
                "Docker, TasksMax= of a service)"
            )
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if os.geteuid() and limit != resource.RLIM_INFINITY:
        yield f"this user may have {limit} processes and threads (ulimit -u)"
    now = _tasks() if sys.platform == "linux" else 0
    for name in ("pid_max", "threads-max"):
        if now >= (most := _number(Path("/proc/sys/kernel") / name)):
            yield f"the system may have {most:.0f} processes and threads (kernel.{name})"


def _tasks() -> int:
    """How many processes and threads the system has."""
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])


def free_memory() -> int:
    """Bytes that are still available on this machine or in this container."""
    import psutil

    free = psutil.virtual_memory().available
    # The usage of a control group says little, since it includes cached files.
    limits = (_number(folder / name) for folder in cgroups() for name in ("memory.max", "memory.limit_in_bytes"))
    return int(min([free, *limits]))


def free_tasks() -> float:
    """How many more processes and threads the system and its control groups allow this user."""
    found = [_number(folder / "pids.max") - _number(folder / "pids.current", 0) for folder in cgroups()]
    if sys.platform == "linux":
        found += [_number(Path("/proc/sys/kernel") / name) - _tasks() for name in ("pid_max", "threads-max")]
    if os.geteuid():  # it does not hold for the superuser
        limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        found += [] if limit == resource.RLIM_INFINITY else [limit]
    return max(0.0, min([math.inf, *found]))


def cgroups() -> list[Path]:
    """The folders of the control groups that this process is in."""
    try:
        groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return []
    return [
        folder
        for _, controllers, path in groups
        for folder in (_CGROUPS / controllers / path.lstrip("/"), _CGROUPS / controllers)
    ]


def _number(file: Path, otherwise: float = math.inf) -> float:
    """The number in a file of the system; without that file there is no limit."""
    try:
        return float(file.read_text().strip().replace("max", "inf"))
    except (OSError, ValueError):
        return otherwise


def free_files() -> float:
    """How many more files this process may open, if its soft limit is raised as far as possible."""
    return _hard_limit() - _open_files()


def check_files(count: int) -> None:
    """Checks that this process can have `count` more open files.

    Raises:
        LaunchError: It may not.
    """
    if count > free_files():
        raise LaunchError(
            f"this many ranks need {_open_files() + count} open files in one process, but the system allows "
            f"{_hard_limit():.0f}. {FILES_ADVICE}"
        )


def raise_file_limit(count: int) -> None:
    """Raises this process's soft limit of open files, if `count` more files need it.

    Raises:
        LaunchError: It may not be raised that far.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _open_files() + count + _SPARE
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    check_files(count)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(min(needed, _hard_limit())), hard))


def raise_file_limit_fully() -> None:
    """Raises the limit as far as possible, for a process that does not know how many others will connect to it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS names a limit that it does not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def close_from(first: int) -> None:
    """Closes all descriptors from a number on.

    Unlike `os.closerange`, which on some builds of Python tries every number up to the limit, and in containers that is
    often a billion.
    """
    for number in _descriptors():
        if number >= first:
            with contextlib.suppress(OSError):  # that of the listing itself
                os.close(number)


def tcp_sockets() -> Iterator[socket.socket]:
    """Each TCP socket of this process, under its own descriptor, which stays open."""
    for number in _descriptors():
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
        return len(_descriptors())
    except OSError:  # not even the folder can be opened
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _descriptors() -> list[int]:
    """Their descriptors."""
    return [int(name) for name in os.listdir("/dev/fd")]
