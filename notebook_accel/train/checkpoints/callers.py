"""Finds out whether all ranks save a checkpoint, or rank 0 alone.

Many scripts for Accelerate call `save_state` in `if accelerator.is_main_process:`. Rank 0 can't see from its own code
whether the others will come, and a collective without them would never end. So a save begins with a rendezvous in the
store of the process group, at a key for the line of the user's code that calls:

    rank 0       opens a rendezvous, waits until the others have joined, and closes it with what it has found
    other ranks  wait for the next rendezvous, join it, and wait until it is closed

How long rank 0 waits depends on what it has found at that line before.
"""

from __future__ import annotations

import enum
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist

from notebook_accel import rank_local
from notebook_accel.train.checkpoints.all_ranks import long_wait_noticed
from notebook_accel.train.ranks.collective_check import location
from notebook_accel.train.ranks.logging import get_logger
from notebook_accel.train.ranks.state import PartialState

FIRST_WAIT_S = 20.0
"""How long rank 0 waits at a line where it has not saved yet."""
NEXT_WAIT_S = 0.5
"""How long it waits where it was alone the last time. Where all came, it waits as long as a collective would."""
_SHORTEST_POLL_S, _LONGEST_POLL_S = 0.001, 0.05

_log = get_logger(__name__)


class Callers(enum.Enum):
    """Which ranks save a checkpoint."""

    ALL = "together"
    FIRST = "alone"
    """Rank 0 alone. Another rank gets this if it has come too late."""


@dataclass
class _Line:
    """What this rank knows of a line of the user's code."""

    joined: int = 0
    """The number of the last rendezvous that it has joined."""
    last: Callers | None = None
    """How that was closed."""


@dataclass
class _Lines:
    group: Any = None
    """The process group that this was in: another one has another store."""
    by_location: dict[str, _Line] = field(default_factory=dict)


def find() -> Callers:
    """Finds out which ranks save a checkpoint at the user's line that led here."""
    where = location()
    lines: _Lines = rank_local.space().setdefault(__name__, _Lines())
    if lines.group is not dist.group.WORLD:
        lines.group, lines.by_location = dist.group.WORLD, {}
    line = lines.by_location.setdefault(where, _Line())
    rendezvous = _Rendezvous(dist.distributed_c10d._get_default_store(), f"save_state/{where}")
    line.last = (_open if PartialState().is_main_process else _join)(rendezvous, line)
    return line.last


class _Rendezvous:
    """The rendezvous at one line, in the store. They are numbered from 1."""

    def __init__(self, store: Any, name: str) -> None:
        self._store = store
        self._name = name

    def open(self) -> int:
        """Opens the next one; returns its number."""
        return int(self._store.add(self._name, 1))

    @property
    def count(self) -> int:
        """The number of the last one; 0 if there is none yet."""
        return int(self._store.add(self._name, 0))

    def join(self, number: int) -> None:
        self._store.add(f"{self._name}/{number}", 1)

    def joined(self, number: int) -> int:
        """How many ranks have joined."""
        return int(self._store.add(f"{self._name}/{number}", 0))

    def close(self, number: int, callers: Callers) -> None:
        self._store.set(f"{self._name}/{number}/callers", callers.value)

    def callers(self, number: int) -> Callers | None:
        """How it was closed, if it has been."""
        key = f"{self._name}/{number}/callers"
        return Callers(self._store.get(key).decode()) if self._store.check([key]) else None


def _open(rendezvous: _Rendezvous, line: _Line) -> Callers:
    """Opens a rendezvous and closes it, on rank 0."""
    others = PartialState().num_processes - 1
    number = rendezvous.open()
    with long_wait_noticed("save_state", FIRST_WAIT_S + 1):  # unless it saves alone before
        came = _wait_for(lambda: rendezvous.joined(number) == others, _wait_s(line))
    callers = Callers.ALL if came else Callers.FIRST
    rendezvous.close(number, callers)
    if callers is Callers.FIRST and line.last is None:
        _log.warning(
            "Only rank 0 has called save_state here within %g s, so it saves without the random states of the other "
            "ranks: after load_state, those draw other numbers than they would have. To save them too, move the call "
            "out of `if accelerator.is_main_process:`.", FIRST_WAIT_S,
        )  # fmt: skip
    return callers


def _wait_s(line: _Line) -> float:
    if line.last is None:
        return FIRST_WAIT_S
    return NEXT_WAIT_S if line.last is Callers.FIRST else math.inf


def _join(rendezvous: _Rendezvous, line: _Line) -> Callers:
    """Joins the next rendezvous, on another rank."""
    with long_wait_noticed("save_state"):
        if not _wait_for(lambda: rendezvous.count > line.joined, FIRST_WAIT_S):
            PartialState().compare_calls("save_state")  # in debug mode, an error names where rank 0 is instead
            _wait_for(lambda: rendezvous.count > line.joined)
        line.joined = rendezvous.count
        rendezvous.join(line.joined)
        _wait_for(lambda: rendezvous.callers(line.joined) is not None)
    callers = rendezvous.callers(line.joined)
    assert callers is not None
    if callers is Callers.FIRST:
        _log.warning(
            "Rank %d called save_state after rank 0 had begun to save alone: the checkpoint lacks its random states.",
            PartialState().process_index, main_process_only=False,
        )  # fmt: skip
    return callers


def _wait_for(condition: Callable[[], bool], most_s: float = math.inf) -> bool:
    """Waits until a condition holds, for at most so many seconds; returns whether it does."""
    end, pause = time.monotonic() + most_s, _SHORTEST_POLL_S
    while not condition():
        if time.monotonic() >= end:
            return False
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_POLL_S)
    return True
