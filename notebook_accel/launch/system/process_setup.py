"""Sets up a new process: parent-death signal, session, signal handlers, streams, thread pools, environment.

Ranks and supervisors call this first, because a fork inherits all of it from the fork server.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import types
from collections.abc import Mapping
from typing import Any

from notebook_accel.launch.system import libc


def find_thread_pools() -> None:
    """Finds, once and before the forks, the thread pools of libraries that `limit_threads` limits."""
    global _blas
    with contextlib.suppress(ImportError):
        from threadpoolctl import ThreadpoolController

        _blas = ThreadpoolController()


_blas: Any = None


def initialize(parent: int) -> None:
    """Does the setup that every launch needs: a session, default signal handlers, and an empty `__main__`."""
    if os.getsid(0) != os.getpid():
        os.setsid()
    libc.die_with_parent(parent)
    gc.enable()
    _reset_signals()
    _replace_main()


def flush() -> None:
    """Flushes the buffers of Python and C."""
    streams: tuple[Any, ...] = (sys.stdout, sys.stderr, libc)
    for stream in streams:
        with contextlib.suppress(Exception):  # it is closed, or `None`
            stream.flush()


def set_environment(environment: Mapping[str, str]) -> None:
    """Sets the environment of this process, with as few changes as possible."""
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def redirect_streams(out: int, err: int) -> None:
    """Redirects descriptors 1 and 2 to the pipes of the driver, so that it also gets output of C code and children."""
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    for source, target in ((out, 1), (err, 2)):
        os.dup2(source, target)
        os.close(source)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # lives as long as the process
    for fd, name in ((1, "stdout"), (2, "stderr")):
        stream = open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def limit_threads() -> None:
    """Limits the thread pools that are loaded; those that are loaded later read `OMP_NUM_THREADS`."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]  # one number for each level of nesting
    threads = max(1, int(first)) if first.isdecimal() else 1
    if _blas is not None:
        _blas.limit(limits=threads, user_api="blas")
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for signum in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(signum, signal.SIG_DFL)


def _replace_main() -> None:
    """Creates a new `__main__` like a notebook's: empty, and without a file that workers could try to run."""
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
