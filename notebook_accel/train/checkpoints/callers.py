"""Finds out whether all ranks save a checkpoint, or rank 0 alone.

Many scripts for Accelerate call `save_state` in `if accelerator.is_main_process:`. Rank 0 can't see from its own code
whether the others will come, and a collective without them would never end. So a save begins with a rendezvous in the
store of the process group:

    rank 0       opens a rendezvous, waits until the others have joined, and closes it with what it has found
    other ranks  join it, or wait for the next if it is not theirs, and then wait until it is closed

It is theirs if they save at the same line of the user's code or, while it is open, to the same folder. How long rank 0
waits depends on what it has found at that line before.
"""

from __future__ import annotations

import enum
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist

from notebook_accel import rank_local
from notebook_accel.train.checkpoints.all_ranks import long_wait_noticed
from notebook_accel.train.ranks.collective_check import user_frame
from notebook_accel.train.ranks.logging import get_logger
from notebook_accel.train.ranks.state import PartialState

FIRST_WAIT_S = 20.0
"""How long rank 0 waits at a line where it has not saved yet."""
NEXT_WAIT_S = 0.5
"""How long it waits where it was alone the last time."""
_ALL_WAIT_S = 1800.0
"""How long it waits where all came the last time: as long as a collective would by default."""
_SHORTEST_POLL_S, _LONGEST_POLL_S = 0.001, 0.05

_KEY = "save_state"

_log = get_logger(__name__)


class Callers(enum.Enum):
    """Which ranks save a checkpoint."""

    ALL = "together"
    FIRST = "alone"
    """Rank 0 alone. Another rank gets this if it has come too late."""


@dataclass(frozen=True)
class _Save:
    """A call of `save_state`."""

    line: str
    """The user's line, the same on all nodes: files may have other paths there, and cells other names."""
    folder: str
    """The folder that it was given; empty if there was none."""

    def has_folder_of(self, other: _Save) -> bool:
        return self.folder != "" and self.folder == other.folder


@dataclass
class _Known:
    """What this rank knows of earlier saves."""

    group: Any = None
    """The process group that they were in: another one has another store."""
    joined: int = 0
    """The number of the last rendezvous that this rank has joined, or was too late for."""
    by_line: dict[str, Callers] = field(default_factory=dict)
    """How the last one was closed."""


def find(folder: str) -> Callers:
    """Finds out which ranks save a checkpoint at the user's line that led here.

    Args:
        folder: The folder that this rank was given; empty if there was none.
    """
    known: _Known = rank_local.space().setdefault(__name__, _Known())
    if known.group is not dist.group.WORLD:
        known.group, known.joined, known.by_line = dist.group.WORLD, 0, {}
    frame = user_frame()
    line = "" if frame is None else f"{frame.f_code.co_name} line {frame.f_lineno}"
    save, rendezvous = _Save(line, folder), _Rendezvous(dist.distributed_c10d._get_default_store())
    if PartialState().is_main_process:
        known.by_line[line] = _open(rendezvous, save, known.by_line.get(line))
        return known.by_line[line]
    known.joined = _join(rendezvous, save, known.joined)
    callers = rendezvous.callers(known.joined)
    assert callers is not None
    if callers is Callers.FIRST:
        _log.warning(
            "Rank %d called save_state after rank 0 had begun to save alone: the checkpoint lacks its random states.",
            PartialState().process_index, main_process_only=False,
        )  # fmt: skip
    return callers


class _Rendezvous:
    """Those of a process group, in its store. They are numbered from 1."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def open(self, save: _Save) -> int:
        """Opens the next one; returns its number."""
        number = int(self._store.add(_KEY, 1))
        self._store.set(f"{_KEY}/{number}/save", json.dumps([save.line, save.folder]))
        return number

    @property
    def count(self) -> int:
        """The number of the last one; 0 if there is none yet."""
        return int(self._store.add(_KEY, 0))

    def save(self, number: int) -> _Save:
        """The call of rank 0."""
        return _Save(*json.loads(self._store.get(f"{_KEY}/{number}/save")))

    def join(self, number: int) -> None:
        self._store.add(f"{_KEY}/{number}", 1)

    def joined(self, number: int) -> int:
        """How many ranks have joined."""
        return int(self._store.add(f"{_KEY}/{number}", 0))

    def close(self, number: int, callers: Callers) -> None:
        self._store.set(f"{_KEY}/{number}/callers", callers.value)

    def callers(self, number: int) -> Callers | None:
        """How it was closed, if it has been."""
        key = f"{_KEY}/{number}/callers"
        return Callers(self._store.get(key).decode()) if self._store.check([key]) else None


def _open(rendezvous: _Rendezvous, save: _Save, last: Callers | None) -> Callers:
    """Opens one and closes it, on rank 0; `last` says how the last one at this line was closed."""
    others = PartialState().num_processes - 1
    number = rendezvous.open(save)
    most_s = {None: FIRST_WAIT_S, Callers.FIRST: NEXT_WAIT_S, Callers.ALL: _ALL_WAIT_S}[last]
    with long_wait_noticed("save_state", FIRST_WAIT_S + 1):  # unless it saves alone before
        came = _wait_for(lambda: rendezvous.joined(number) == others, most_s)
    callers = Callers.ALL if came else Callers.FIRST
    rendezvous.close(number, callers)
    if callers is Callers.FIRST and last is None:
        _log.warning(
            "Only rank 0 has called save_state here within %g s, so it saves without the random states of the other "
            "ranks: after load_state, those draw other numbers than they would have. To save them too, move the call "
            "out of `if accelerator.is_main_process:`.", FIRST_WAIT_S,
        )  # fmt: skip
    return callers


def _join(rendezvous: _Rendezvous, save: _Save, joined: int) -> int:
    """Joins one, on another rank, and waits until it is closed; returns its number, which is above `joined`."""

    def find_number() -> int:
        """The number of this save's, which may be closed already; 0 if rank 0 has not opened it yet."""
        for number in range(rendezvous.count, joined, -1):
            of_first = rendezvous.save(number)
            if of_first.line == save.line or (of_first.has_folder_of(save) and not rendezvous.callers(number)):
                return number
        return 0

    with long_wait_noticed("save_state"):
        number = _wait_for(find_number, FIRST_WAIT_S)
        if not number:
            PartialState().compare_calls("save_state")  # in debug mode, an error names where rank 0 is instead
            number = _wait_for(find_number)
        rendezvous.join(number)
        _wait_for(lambda: rendezvous.callers(number) is not None)
    return number


def _wait_for(found: Callable[[], int], most_s: float = math.inf) -> int:
    """Waits until something is found, for at most `most_s` seconds. Returns it, or 0."""
    end, pause = time.monotonic() + most_s, _SHORTEST_POLL_S
    while not (number := found()):
        if time.monotonic() >= end:
            return 0
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_POLL_S)
    return number
