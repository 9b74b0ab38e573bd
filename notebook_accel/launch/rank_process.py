"""The process that a rank lives in: how it comes to be, from a fork or afresh, and how it ends."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import os
import signal
import socket
import sys
import threading
import time
import traceback
import types
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from notebook_accel import events
from notebook_accel.errors import ConfigurationError
from notebook_accel.events import Exited, to_wire
from notebook_accel.launch import (
    asking,
    bars,
    frameworks,
    jax_cluster,
    keras_bars,
    payload,
    pickling,
    resolver,
    rich_bars,
    workers,
)
from notebook_accel.launch.rank import Rank
from notebook_accel.launch.stream import Channel, Message, pair

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_LINE_BUFFERED = 1  # _IOLBF
_PARTING = 0.03
"""Seconds between a rank's last word and its end."""


@dataclass(frozen=True)
class RankStart:
    """What a new rank's process needs to know."""

    rank: int
    """Its number on this machine."""
    environment: Mapping[str, str]
    heartbeat: float
    pace: float
    """Seconds between two times that it tells of its progress."""
    fds: Sequence[int]
    """Its channel, standard output and standard error."""

    @classmethod
    def from_message(cls, message: Message) -> RankStart:
        header = message.header
        return cls(header["rank"], header["env"], header["heartbeat"], header["pace"], message.fds)

    def options(self) -> dict[str, Any]:
        """What `main` needs beside the descriptors and the environment."""
        return {"rank": self.rank, "heartbeat": self.heartbeat, "pace": self.pace}


def prepare() -> None:
    """Does, once and before the forks, what every rank would do."""
    global _blas
    with contextlib.suppress(ImportError):
        from threadpoolctl import ThreadpoolController

        _blas = ThreadpoolController()
    if sys.platform == "linux":
        # What C code prints is to appear line by line too, although standard output is a pipe.
        libc = ctypes.CDLL(None)
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, _LINE_BUFFERED, 0)
    if "torch.distributed.rendezvous" in sys.modules:
        resolver.keep_local(sys.modules["torch.distributed.rendezvous"])
    asking.install()
    bars.install()
    rich_bars.install()
    keras_bars.install()
    jax_cluster.install()
    frameworks.install()
    importlib.invalidate_caches()  # imports what it needs for it, once
    # What the server's imports want done at the end is the server's affair: torch takes its libraries of operators
    # apart, which would take every rank 40 ms.
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False
    # It is registered again by a rank's own first finalizer; until then it only collects garbage.
    atexit.unregister(weakref.finalize._exitfunc)  # type: ignore[attr-defined]
    weakref.finalize._registered_with_atexit = False  # type: ignore[attr-defined]


_blas: Any = None


def stand_by(server: Channel, parent: int) -> NoReturn:
    """Waits, in a fork of the server, to become a rank."""
    _settle(parent)
    _rehearse()
    message = next(server.messages(), None)
    if message is None:
        os._exit(0)
    server.close()
    start = RankStart.from_message(message)
    take_environment(start.environment)
    _live(start)


def _rehearse() -> None:
    """Runs an empty call, so that the pages that every call writes to are this process's own before one comes."""
    _take_threads()
    ours, theirs = map(Channel, pair())
    with contextlib.suppress(ConfigurationError), payload.pack(_nothing, (), {}) as call:  # the folder may be gone
        payload.send(call, ours)
    ours.finish()
    rank = Rank(theirs, heartbeat=1.0, isolated=False)
    rank.serve()
    rank.close()
    ours.close()


def _nothing() -> None:
    pass


def become(start: RankStart, parent: int) -> NoReturn:
    """Turns a fork of the server into a rank."""
    _settle(parent)
    take_environment(start.environment)
    _live(start)


def main(channel: int, out: int, err: int, options: Mapping[str, Any]) -> NoReturn:
    """A rank that was spawned: a fresh interpreter in a session of its own, its environment already in place."""
    environment = dict(os.environ)
    prepare()
    _settle(os.getppid())
    take_environment(environment)  # imports may have added to it
    _live(RankStart(options["rank"], environment, options["heartbeat"], options["pace"], (channel, out, err)))


def _settle(parent: int) -> None:
    """Does what does not depend on the launch: a session, signals and a `__main__` of its own."""
    if os.getsid(0) != os.getpid():
        os.setsid()
    die_with(parent)
    gc.enable()
    _take_signals()
    _take_main()
    workers.install()
    pickling.rank_device = _device


def die_with(parent: int) -> None:
    """Has this process killed when its parent ends, which has one thread; at once, if it has ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


def outlive_parent() -> None:
    """Takes `die_with` back."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, 0, 0, 0, 0)


def _live(start: RankStart) -> NoReturn:
    code = 1
    try:
        channel = Channel(socket.socket(fileno=start.fds[0]))
        _take_streams(*start.fds[1:])
        _take_threads()
        # A worker that the user's code forks must not speak for the rank, nor keep its channel open.
        os.register_at_fork(after_in_child=channel.close)
        os.register_at_fork(after_in_child=lambda: events.listen(None))
        rank = Rank(channel, start.heartbeat, pace=start.pace)
        rank.serve()
        code = int(rank.failed)
        _leave(wait=not rank.failed)
        _flush()
        if not rank.failed and os.environ.get("NOTEBOOK_ACCEL_DEVICE") == "cpu":
            # The system takes milliseconds to take this process apart: the launch need not wait for that, nor compete
            # with it. (With a device it must wait, for its memory.)
            channel.send(to_wire(Exited(code=0, at=time.time()))[0])
            time.sleep(_PARTING)
    except BaseException:
        traceback.print_exc()
    finally:
        _flush()
        os._exit(code)


def _flush() -> None:
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
        ctypes.CDLL(None).fflush(None)


def take_environment(environment: Mapping[str, str]) -> None:
    """Makes the environment of this process the given one, with as few changes as that takes."""
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _take_streams(out: int, err: int) -> None:
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


def _take_signals() -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for signum in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _take_threads() -> None:
    """Limits the thread pools that are loaded already; those loaded later read the environment."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]  # one number for each level of nesting
    threads = max(1, int(first)) if first.isdecimal() else 1
    if _blas is not None:
        _blas.limit(limits=threads, user_api="blas")
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)


def _take_main() -> None:
    """A `__main__` of its own, like a notebook's: empty, and without a file that workers could try to run."""
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main


def _device() -> str:
    """Where tensors that the notebook kept on a device are rebuilt."""
    if os.environ.get("NOTEBOOK_ACCEL_DEVICE") != "cuda":
        return "cpu"
    import torch

    return f"cuda:{int(os.environ['LOCAL_RANK']) % torch.cuda.device_count()}"


def _leave(*, wait: bool) -> None:
    """Ends as an interpreter ends, for whatever the user's code has registered for that moment."""
    torch = sys.modules.get("torch")
    if wait and torch is not None and torch.cuda.is_initialized() and torch.distributed.is_initialized():
        # Otherwise a collective that still runs on the device ends with this process, and hangs the others. On the
        # CPU none outlives its call, and gloo takes 20 ms to say goodbye.
        with contextlib.suppress(Exception):
            torch.distributed.destroy_process_group()
    if wait:
        threading._shutdown()  # type: ignore[attr-defined]
    # A DataLoader's iterator that is collected as part of a cycle waits for its workers for five seconds: its queues
    # are closed before it can tell them. Left alone, they are ended by what multiprocessing has registered.
    gc.disable()
    atexit._run_exitfuncs()
