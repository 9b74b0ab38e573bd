"""The process of a rank, from its start to its end.

It starts in one of three ways: `wait_for_launch` in a warm rank, `run_forked` in a fork that is made for a launch, or
`main` in a new interpreter. `prepare` runs before that, once for all forks; each then runs `settle` and `_run_to_exit`.
"""

from __future__ import annotations

import atexit
import importlib
import logging
import os
import socket
import time
import traceback
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from notebook_accel import events
from notebook_accel.events import Exited, to_wire
from notebook_accel.launch.rank import first_step, rehearsal, script, stdin
from notebook_accel.launch.rank.patches import (
    cell_locations,
    ddp_logger,
    dynamo,
    gloo_peers,
    ipython,
    jax,
    keras,
    loader_workers,
    python_conditions,
    python_forks,
    rich,
    tqdm,
    trainers,
)
from notebook_accel.launch.rank.rank import Rank
from notebook_accel.launch.system import network, own_process
from notebook_accel.launch.wire import pickling, pipe_marks
from notebook_accel.launch.wire.constants import Streams
from notebook_accel.launch.wire.mirrored import notebook_state
from notebook_accel.launch.wire.mirrored.on_import import replace, when_imported
from notebook_accel.launch.wire.stream import Channel, Message

_EXIT_NOTICE = 0.03
"""Seconds between `Exited` and the exit itself, in which the kernel can already continue."""


@dataclass(frozen=True)
class RankStart:
    """What a new rank's process needs to know."""

    rank: int
    """Its number on this node."""
    environment: Mapping[str, str]
    heartbeat: float
    pace: float
    """Seconds between two reports of its progress."""
    fds: Sequence[int]
    """Its channel, standard input if it runs a script, standard output and standard error."""
    streams: Streams

    @classmethod
    def from_message(cls, message: Message) -> RankStart:
        header = message.header
        return cls(
            header["rank"],
            header["env"],
            header["heartbeat"],
            header["pace"],
            message.fds,
            Streams(header["streams"]),
        )

    @property
    def runs_script(self) -> bool:
        """Whether its only call is to run a script, after which the process exits as Python does."""
        return self.streams is not Streams.CALLS

    def options(self) -> dict[str, Any]:
        """What `main` needs beside the descriptors and the environment."""
        return {"rank": self.rank, "heartbeat": self.heartbeat, "pace": self.pace, "streams": self.streams.value}


def prepare() -> None:
    """Does once, before the forks, what every rank would otherwise do itself: among others, patches other libraries."""
    own_process.find_thread_pools()
    own_process.line_buffer_c_stdout()
    when_imported({"torch.distributed.rendezvous": _patch_rendezvous})
    stdin.install()
    tqdm.install()
    rich.install()
    keras.install()
    jax.install()
    trainers.install()
    ddp_logger.install()
    dynamo.install()
    ipython.install()
    cell_locations.install()
    gloo_peers.install()
    importlib.invalidate_caches()  # imports what it needs for it, once
    notebook_state.remember_user_folders()
    # What the server's imports have registered for the exit would run in every rank too: torch unloads its operator
    # libraries, which takes 40 ms.
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False
    _forget_unbuffered_log_handlers()
    # A rank's own first finalizer registers this again. Until then, all that it would do is to collect garbage.
    atexit.unregister(weakref.finalize._exitfunc)  # type: ignore[attr-defined]
    weakref.finalize._registered_with_atexit = False  # type: ignore[attr-defined]


def _patch_rendezvous(module: Any) -> None:
    replace(module, "_create_c10d_store", network.creating_without_names)


def _forget_unbuffered_log_handlers() -> None:
    """Has `logging` not flush and close, as each rank exits, the hundred handlers that torch's import has made.

    A handler whose `flush` only flushes its stream does so with each record too.
    """
    flushes = (None, logging.Handler.flush, logging.StreamHandler.flush)  # `None`: the handler is gone
    made: list[weakref.ref[logging.Handler]] = logging._handlerList  # type: ignore[attr-defined]
    made[:] = [each for each in made if getattr(type(each()), "flush", None) not in flushes]


def wait_for_launch(server: Channel, parent: int) -> NoReturn:
    """The start of a warm rank, which is a fork of the server: waits to become a rank."""
    settle(parent)
    rehearsal.run()
    message = next(server.messages(), None)
    if message is None:
        os._exit(0)
    server.close()
    start = RankStart.from_message(message)
    own_process.set_environment(start.environment)
    _run_to_exit(start)


def run_forked(start: RankStart, parent: int) -> NoReturn:
    """The start of a rank in a fork of the server that is made for it."""
    settle(parent)
    own_process.set_environment(start.environment)
    _run_to_exit(start)


def main(*arguments: Any) -> NoReturn:
    """The start of a spawned rank: a new interpreter in a session of its own, its environment already in place.

    Args:
        arguments: The descriptors, and the options of `RankStart`.
    """
    *fds, options = arguments
    environment = dict(os.environ)
    prepare()
    settle(os.getppid())
    own_process.set_environment(environment)  # imports may have added to it
    _run_to_exit(RankStart(**{**options, "streams": Streams(options["streams"])}, environment=environment, fds=fds))


def settle(parent: int) -> None:
    """Sets up the process of a rank as far as that does not depend on the launch."""
    own_process.initialize(parent)
    loader_workers.install()
    python_conditions.install()
    python_forks.install()
    pickling.set_rank_device(_device)
    own_process.remember_exit_handlers()


def _run_to_exit(start: RankStart) -> NoReturn:
    code = 1
    try:
        channel = Channel(socket.socket(fileno=start.fds[0]))
        if start.runs_script:
            script.take_streams(start.fds[1:], shared=start.streams is Streams.DRIVERS)
        else:
            own_process.redirect_streams(*start.fds[1:])
        if start.streams is not Streams.DRIVERS:
            pipe_marks.set_pipes([os.dup(1), os.dup(2)])
        own_process.limit_threads()
        first_step.watch()
        # A worker that the user's code forks must neither send as the rank nor keep its channel open.
        os.register_at_fork(after_in_child=channel.close)
        os.register_at_fork(after_in_child=lambda: events.set_sink(None))
        rank = Rank(channel, start.heartbeat, pace=start.pace, calls_once=start.runs_script)
        rank.serve()
        if start.runs_script:
            script.exit()
        code = int(rank.failed)
        own_process.finish(wait=not rank.failed)
        if not rank.failed and os.environ.get("NOTEBOOK_ACCEL_DEVICE") == "cpu":
            # The system takes milliseconds to free the memory of this process. The launch need not wait for that, nor
            # compete with it. (With a device it must wait: the next launch needs the device's memory.)
            channel.send(to_wire(Exited(code=0, at=time.time()))[0])
            time.sleep(_EXIT_NOTICE)
    except BaseException:
        traceback.print_exc()
    finally:
        own_process.flush()
        os._exit(code)


def _device() -> str:
    """The device on which tensors are rebuilt that were on a device in the notebook."""
    if os.environ.get("NOTEBOOK_ACCEL_DEVICE") != "cuda":
        return "cpu"
    import torch

    return f"cuda:{int(os.environ['LOCAL_RANK']) % torch.cuda.device_count()}"
