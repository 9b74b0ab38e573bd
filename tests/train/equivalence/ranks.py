"""Ranks that stay alive between programs: a launch whose function waits for scripts, and trains as they say."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
import time
import traceback
import types
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Client, Connection, Listener, wait
from pathlib import Path
from typing import Any

from notebook_accel import notebook_launcher
from notebook_accel.launch import engines
from notebook_accel.launch.engines.preloader import TRAINING
from tests import preloading

_KEY = b"programs"
_MOST_PROGRAMS = 50
"""After so many, ranks are replaced: the process groups of meshes, and their threads, add up."""
_GLANCE = 0.5
"""Seconds after which the ranks are looked at."""
_STILL = 4.0
"""Seconds after which ranks that wait will wait forever: nothing in a program sleeps."""


@dataclass(frozen=True)
class Outcome:
    """What became of a script on a rank."""

    result: Any = None
    """What `train()` has returned."""
    error: str = ""
    """The traceback of an exception."""
    error_types: list[str] = field(default_factory=list)
    """The names of its classes, from the most special to the most general."""
    message: str = ""
    """Its text."""
    raised_by: str = ""
    """The package whose own code has raised it: `notebook_accel`, `accelerate`, or neither."""
    has_trained: bool = False
    """Whether that was after the first batch."""
    operations: int = -1
    """How many collectives the rank has started; where ranks differ, they can no longer meet."""
    warnings: list[str] = field(default_factory=list)
    """What was warned of."""

    @property
    def is_stuck(self) -> bool:
        """Whether the rank is gone, or still waits for another."""
        return self.operations < 0


class Hang(Exception):
    """Ranks did not end in time; the text has their stacks."""


class Group:
    """So many ranks."""

    def __init__(self, size: int) -> None:
        listener = Listener(family="AF_UNIX", authkey=_KEY)
        arguments = (listener.address, os.getcwd())
        environment = {name: "" for name in os.environ if name.startswith("ACCELERATE_")}
        self._job = notebook_launcher(
            serve, arguments, num_processes=size, device="cpu", env=environment, block=False, stall_after=None
        )
        self._connections: dict[int, Connection] = {}
        self._processes: dict[int, int] = {}
        for _ in range(size):
            connection = listener.accept()
            rank, process = connection.recv()
            self._connections[rank], self._processes[rank] = connection, process
        listener.close()
        self._connections = dict(sorted(self._connections.items()))
        self._done = 0

    def run(self, source: str, arguments: tuple[Any, ...], wear: int, seconds: float) -> list[Outcome]:
        """What became of a script, by rank; ranks that were still waiting for one that has failed have none.

        Args:
            source: The script.
            arguments: Those of its `train`.
            wear: After how many programs of another kind ranks would be as worn.
            seconds: How long it may take.

        Raises:
            Hang: The ranks wait for each other, or it took longer.
        """
        self._done += wear
        for connection in self._connections.values():
            connection.send((source, arguments))
        found: dict[int, Outcome] = {}
        left = dict(self._connections)
        end = time.monotonic() + seconds
        stillness = _Stillness()
        while left and time.monotonic() < end:
            for connection in wait(left.values(), _GLANCE):
                rank = next(rank for rank in left if left[rank] is connection)
                found[rank] = _received(left.pop(rank))
            if stillness.lasts([self._processes[rank] for rank in left]):
                break
        if left and not any(each.error for each in found.values()):
            raise Hang(f"ranks {sorted(left)} still wait:\n{self._job.stacks()}")
        return [found.get(rank, Outcome()) for rank in self._connections]

    @property
    def is_worn(self) -> bool:
        """Whether it is time for others."""
        return self._done >= _MOST_PROGRAMS

    def end(self) -> None:
        """Ends the ranks, whatever they do."""
        for connection in self._connections.values():
            connection.close()
        self._job.cancel()
        with contextlib.suppress(Exception):
            self._job.wait()


class _Stillness:
    """Whether processes wait, rather than for a core: then, none of them has run for a while."""

    def __init__(self) -> None:
        self._before: list[str] = []
        self._since = time.monotonic()

    def lasts(self, processes: Sequence[int]) -> bool:
        """Whether all of them have been waiting for some seconds."""
        now = [_switches(process) for process in processes]
        if now != self._before or not all(now):
            self._before, self._since = now, time.monotonic()
        return time.monotonic() - self._since > _STILL


def _switches(process: int) -> str:
    """How often the main thread has been given a core; nothing while it runs, waits for one, or has other processes."""
    try:
        lines = Path(f"/proc/{process}/task/{process}/status").read_text().splitlines()
        children = Path(f"/proc/{process}/task/{process}/children").read_text()
    except OSError:
        return "gone"
    is_waiting = any(line.startswith("State:\tS") for line in lines) and not children
    return " ".join(line for line in lines if "ctxt_switches" in line) if is_waiting else ""


def _received(connection: Connection) -> Outcome:
    try:
        outcome: Outcome = connection.recv()
        return outcome
    except EOFError:
        return Outcome(error="the rank has died")


_IMPORTED = (
    *TRAINING,
    "accelerate",
    "torchdata.stateful_dataloader",
)
"""What ranks import, which takes them longer than a program."""


class Pool:
    """Groups of each size, started when they are needed, and replaced once a script has failed on them."""

    def __init__(self) -> None:
        engine = engines.get()
        engine.warm()
        engine.preload(_IMPORTED)
        preloading.wait()
        self._groups: dict[int, Group] = {}

    def run(
        self, size: int, source: str, arguments: tuple[Any, ...] = (), wear: int = 1, seconds: float = 100
    ) -> list[Outcome]:
        """As `Group.run`, on a group of this size."""
        group = self._groups.get(size)
        if group is None:
            group = self._groups[size] = Group(size)
        keep = False
        try:
            outcomes = group.run(source, arguments, wear, seconds)
            keep = not any(each.is_stuck for each in outcomes) and not group.is_worn
            keep = keep and len({each.operations for each in outcomes}) == 1
            return outcomes
        finally:
            if not keep:
                self._groups.pop(size).end()

    def close(self) -> None:
        for group in self._groups.values():
            group.end()
        self._groups.clear()


def serve(address: str, folder: str) -> None:
    """On a rank: runs the scripts that it is sent, until there are no more."""
    import torch

    from notebook_accel.train.ranks.logging import MultiProcessAdapter

    MultiProcessAdapter.warning_once = MultiProcessAdapter.warning  # each program is warned, not only the first
    torch.set_num_threads(1)
    sys.path.insert(0, folder)
    for descriptor in (1, 2):  # ranks that can't agree abort with many words
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    with Client(address, authkey=_KEY) as connection:
        connection.send((int(os.environ["RANK"]), os.getpid()))
        while True:
            try:
                source, arguments = connection.recv()
            except EOFError:
                return
            connection.send(_outcome(source, arguments))


class _Warnings(logging.Handler):
    """Keeps what is logged as a warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def _outcome(source: str, arguments: tuple[Any, ...]) -> Outcome:
    from notebook_accel.train.ranks import process_group

    handler = _Warnings()
    loggers = [logging.getLogger(name) for name in ("notebook_accel", "accelerate")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            outcome = replace(_attempt(source, arguments), operations=max(0, process_group.operations()))
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
    outcome.warnings.extend([*handler.texts, *(f"{each.category.__name__}: {each.message}" for each in caught)])
    return outcome


def _attempt(source: str, arguments: tuple[Any, ...]) -> Outcome:
    _reset()
    try:
        return Outcome(load(source)["train"](*arguments))
    except Exception as error:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        where = frames[-1].f_code.co_filename
        return Outcome(
            error=traceback.format_exc(),
            error_types=[kind.__name__ for kind in type(error).__mro__],
            message=str(error),
            raised_by=next((name for name in ("notebook_accel", "accelerate") if f"/{name}/" in where), ""),
            has_trained=any(frame.f_code.co_name == "train" and frame.f_locals.get("rates") for frame in frames),
        )


def load(source: str) -> dict[str, Any]:
    """The definitions of a script, as a module that pickles."""
    module = types.ModuleType("program")
    sys.modules["program"] = module
    exec(compile(source, "program.py", "exec"), module.__dict__)
    return module.__dict__


def _reset() -> None:
    import torch
    import torch.distributed as dist

    from notebook_accel import AcceleratorState, GradientState

    for name in ("NOTEBOOK_ACCEL_CHECKPOINT_DIR", "NOTEBOOK_ACCEL_CHECKPOINT_EVERY"):
        os.environ.pop(name, None)
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    if "accelerate" in sys.modules:
        from accelerate import state as theirs

        theirs.AcceleratorState._reset_state(reset_partial_state=True)
        theirs.GradientState._reset_state()
    sys.modules.pop("program", None)
    gc.collect()
    if dist.is_initialized() and dist.get_world_size() == 1:
        dist.destroy_process_group()
    torch.manual_seed(1234)
