"""What a new process takes for its own: its parent's death, a session, signals, streams, threads, an environment.

Ranks do so, and what starts ranks for them: a fork has all of this from the server, which is none of its affair.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
import types
from collections.abc import Mapping
from typing import Any

from notebook_accel.launch.system import libc


def find_thread_pools() -> None:
    """Looks, once and before the forks, for the thread pools of libraries, which `take_threads` limits."""
    global _blas
    with contextlib.suppress(ImportError):
        from threadpoolctl import ThreadpoolController

        _blas = ThreadpoolController()


_blas: Any = None


def initialize(parent: int) -> None:
    """Does what does not depend on the launch: a session, signals and a `__main__` of its own."""
    if os.getsid(0) != os.getpid():
        os.setsid()
    libc.die_with_parent(parent)
    gc.enable()
    _take_signals()
    _take_main()


def flush() -> None:
    """Writes out what Python and C have buffered."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
        ctypes.CDLL(None).fflush(None)


def set_environment(environment: Mapping[str, str]) -> None:
    """Makes the environment of this process the given one, with as few changes as that takes."""
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def redirect_streams(out: int, err: int) -> None:
    """Everything that is written to descriptors 1 and 2 goes to the kernel, line by line, whoever writes it."""
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
    """Limits the thread pools that are loaded already; those loaded later read the environment."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]  # one number for each level of nesting
    threads = max(1, int(first)) if first.isdecimal() else 1
    if _blas is not None:
        _blas.limit(limits=threads, user_api="blas")
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)


def _take_signals() -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for signum in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(signum, signal.SIG_DFL)


def _take_main() -> None:
    """A `__main__` of its own, like a notebook's: empty, and without a file that workers could try to run."""
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
