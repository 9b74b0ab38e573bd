"""Imports modules before the forks, as long as forking is safe: no thread is running and no device is open."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Sequence

RANKS_ONLY = frozenset({"jax", "tensorflow", "keras"})
"""Packages that only ranks import, even if the notebook has imported them: their native code does not survive a fork,
and they read variables that a launch sets, such as `JAX_PLATFORMS` and `KERAS_BACKEND`, at import time."""
_DEVICE_FILES = ("/dev/nvidia", "/dev/accel", "/dev/vfio", "/dev/kfd")


def import_all(modules: Sequence[str], announce: Callable[[str], object]) -> str | None:
    """Imports the modules that it can; returns the first package after which forking is no longer safe.

    Each package is announced before it is imported, since an import may end the process.
    """
    packages: dict[str, list[str]] = {}
    before = RANKS_ONLY & sys.modules.keys()
    for name in modules:
        packages.setdefault(name.partition(".")[0], []).append(name)
    for package, names in packages.items():
        if package in RANKS_ONLY:
            continue
        announce(package)
        for name in names:
            # The rank that imports it raises the same error where the user can see it.
            with contextlib.suppress(BaseException):
                importlib.import_module(name)
        if (
            not is_safe_to_fork() or RANKS_ONLY & sys.modules.keys() - before
        ):  # it may have imported one of those packages
            return package
    return None


def is_safe_to_fork() -> bool:
    """Whether a fork of this process is safe: one thread, no open device."""
    if _thread_count() > 1:
        end_threads()
    return _thread_count() == 1 and not any(target.startswith(_DEVICE_FILES) for target in _open_files())


def end_threads() -> None:
    """Ends the threads of libraries such as OpenBLAS, which do so themselves when the process forks."""
    try:
        pid = os.fork()
    except OSError:
        return  # threads end before the fork, so also if it fails
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _thread_count() -> int:
    return len(os.listdir("/proc/self/task"))


def _open_files() -> list[str]:
    found = []
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{entry}"))
    return found
