"""The process that a rank lives in: how it comes to be, from a fork or afresh, and how it ends."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import socket
import sys
import time
import traceback
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from notebook_accel import events
from notebook_accel.errors import ConfigurationError
from notebook_accel.events import Exited, to_wire
from notebook_accel.launch.rank import stdin
from notebook_accel.launch.rank.patches import jax, keras, loader_workers, rich, tqdm, trainers
from notebook_accel.launch.rank.rank import Rank
from notebook_accel.launch.system import libc, own_process, process_exit, resolver
from notebook_accel.launch.wire import mirror, payload, pickling
from notebook_accel.launch.wire.stream import Channel, Message, pair

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
    own_process.find_thread_pools()
    libc.line_buffer_c_stdout()
    if "torch.distributed.rendezvous" in sys.modules:
        resolver.patch_rendezvous(sys.modules["torch.distributed.rendezvous"])
    stdin.install()
    tqdm.install()
    rich.install()
    keras.install()
    jax.install()
    trainers.install()
    importlib.invalidate_caches()  # imports what it needs for it, once
    mirror.remember_user_folders()
    # What the server's imports want done at the end is the server's affair: torch takes its libraries of operators
    # apart, which would take every rank 40 ms.
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False
    # It is registered again by a rank's own first finalizer; until then it only collects garbage.
    atexit.unregister(weakref.finalize._exitfunc)  # type: ignore[attr-defined]
    weakref.finalize._registered_with_atexit = False  # type: ignore[attr-defined]


def stand_by(server: Channel, parent: int) -> NoReturn:
    """Waits, in a fork of the server, to become a rank."""
    settle(parent)
    _rehearse()
    message = next(server.messages(), None)
    if message is None:
        os._exit(0)
    server.close()
    start = RankStart.from_message(message)
    own_process.set_environment(start.environment)
    _live(start)


def _rehearse() -> None:
    """Runs an empty call, so that the pages that every call writes to are this process's own before one comes."""
    own_process.limit_threads()
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
    settle(parent)
    own_process.set_environment(start.environment)
    _live(start)


def main(channel: int, out: int, err: int, options: Mapping[str, Any]) -> NoReturn:
    """A rank that was spawned: a fresh interpreter in a session of its own, its environment already in place."""
    environment = dict(os.environ)
    prepare()
    settle(os.getppid())
    own_process.set_environment(environment)  # imports may have added to it
    _live(RankStart(options["rank"], environment, options["heartbeat"], options["pace"], (channel, out, err)))


def settle(parent: int) -> None:
    """Makes a process one of ranks, as far as that does not depend on the launch."""
    own_process.initialize(parent)
    loader_workers.install()
    pickling.rank_device = _device


def _live(start: RankStart) -> NoReturn:
    code = 1
    try:
        channel = Channel(socket.socket(fileno=start.fds[0]))
        own_process.redirect_streams(*start.fds[1:])
        own_process.limit_threads()
        # A worker that the user's code forks must not speak for the rank, nor keep its channel open.
        os.register_at_fork(after_in_child=channel.close)
        os.register_at_fork(after_in_child=lambda: events.set_sink(None))
        rank = Rank(channel, start.heartbeat, pace=start.pace)
        rank.serve()
        code = int(rank.failed)
        process_exit.finish(wait=not rank.failed)
        if not rank.failed and os.environ.get("NOTEBOOK_ACCEL_DEVICE") == "cpu":
            # The system takes milliseconds to take this process apart: the launch need not wait for that, nor compete
            # with it. (With a device it must wait, for its memory.)
            channel.send(to_wire(Exited(code=0, at=time.time()))[0])
            time.sleep(_PARTING)
    except BaseException:
        traceback.print_exc()
    finally:
        own_process.flush()
        os._exit(code)


def _device() -> str:
    """Where tensors that the notebook kept on a device are rebuilt."""
    if os.environ.get("NOTEBOOK_ACCEL_DEVICE") != "cuda":
        return "cpu"
    import torch

    return f"cuda:{int(os.environ['LOCAL_RANK']) % torch.cuda.device_count()}"
