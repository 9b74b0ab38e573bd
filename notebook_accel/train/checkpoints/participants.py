"""Lets rank 0 save a checkpoint without waiting for other ranks, to which those that call add their parts.

Where each rank has all weights, rank 0 needs nothing of the others. Nor can it know whether they call: many scripts for
Accelerate call `save_state` in `if accelerator.is_main_process:`. So it announces what it does, in the store of the
process group:

    rank 0       announces a save and its folder, writes the checkpoint, and announces that it is there
    other ranks  that call find the announcement, write their parts aside, and add them when the checkpoint is there

A call belongs to the save with the same folder that rank 0 makes at the same point of the training: after as many steps
of the optimizers. If there is none, as where names of folders contain the time, it belongs to another save there.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch.distributed as dist

from notebook_accel import rank_local
from notebook_accel.errors import CheckpointError
from notebook_accel.train.checkpoints.all_ranks import long_wait_noticed
from notebook_accel.train.ranks.state import PartialState
from notebook_accel.train.ranks.step_observers import TrainingPoint

T = TypeVar("T")
NOTICE_AFTER_S = 20.0
"""How long a rank waits for rank 0 before it says so."""
OTHER_FOLDER_AFTER_S = 2.0
"""How long it looks for another save to its own folder, before it takes that to another."""
_LONGEST_WAIT_S = 1800.0
"""How long it waits: as long as a collective would by default."""
_SHORTEST_POLL_S, _LONGEST_POLL_S = 0.001, 0.05
_KEY = "save_state"


class Save:
    """A save that rank 0 makes, as the store has it.

    Args:
        store: That of the process group.
        number: Its number among all saves, from 1.
        facts: What rank 0 has announced first.

    Attributes:
        id: Its name in the files of the ranks, which no other save has.
        given: The folder that rank 0 was given; empty if there was none.
        point: How many steps the optimizers had made.
    """

    def __init__(self, store: Any, number: int, facts: dict[str, Any]) -> None:
        self.number = number
        self.id: str = facts["id"]
        self.given: str = facts["given"]
        self.point: int = facts["point"]
        self._store = store

    def name(self, folder: Path) -> None:
        """Announces the folder, on rank 0."""
        self._set("folder", str(folder))

    def end(self, error: str = "") -> None:
        """Announces that the checkpoint is there, on rank 0; or, if it could not be written, why."""
        self._set("end", error)

    @property
    def is_over(self) -> bool:
        """Whether the checkpoint is there, or could not be written."""
        return self._has("end")

    def folder(self) -> Path:
        """Waits for the folder on rank 0's node.

        Raises:
            CheckpointError: Rank 0 could not begin to save.
        """
        _wait_for(lambda: self._has("folder") or self.is_over)
        if not self._has("folder"):
            self.wait()
        return Path(self._get("folder"))

    def wait(self) -> None:
        """Waits until the checkpoint is there.

        Raises:
            CheckpointError: Rank 0 could not write it.
        """
        _wait_for(lambda: self.is_over)
        if error := self._get("end"):
            raise CheckpointError(f"rank 0 could not write the checkpoint: {error}")

    def _set(self, what: str, text: str) -> None:
        self._store.set(f"{_KEY}/{self.number}/{what}", text)

    def _has(self, what: str) -> bool:
        return bool(self._store.check([f"{_KEY}/{self.number}/{what}"]))

    def _get(self, what: str) -> str:
        text: str = self._store.get(f"{_KEY}/{self.number}/{what}").decode()
        return text


@contextlib.contextmanager
def announced(given: str) -> Iterator[Save]:
    """Announces a save on rank 0, and its end after the block.

    Args:
        given: The folder that this rank was given; empty if there was none.
    """
    store = _store()
    facts = {"id": uuid.uuid4().hex, "given": given, "point": TrainingPoint.of_this_rank().steps}
    number = int(store.add(_KEY, 1))
    store.set(f"{_KEY}/{number}", json.dumps(facts))
    save = Save(store, number, facts)
    try:
        yield save
    except BaseException as error:
        save.end(f"{type(error).__name__}: {error}")
        raise
    save.end()


def find(given: str, *, same_paths: bool) -> Save:
    """Waits for the save of rank 0 that this rank's call belongs to.

    Args:
        given: The folder that this rank was given; empty if there was none.
        same_paths: Whether a folder has the same path here as for rank 0. On another node, only its name is compared.

    Raises:
        CheckpointError: Rank 0 has left this point of the training without a save.
    """
    known: _Known = rank_local.space().setdefault(__name__, _Known())
    if known.group is not dist.group.WORLD:
        known.group, known.done = dist.group.WORLD, 0
    point, store = TrainingPoint.of_this_rank().steps, _store()
    message = (
        f"save_state has waited for rank 0 for {NOTICE_AFTER_S:g} s. Rank 0 writes the weights, so it has to call "
        "save_state too, after the same step"
    ) + (f", with the same folder: this rank was given {given}." if given else ".")

    def is_ours(save: Save) -> bool:
        return save.given == given if same_paths else Path(save.given).name == Path(given).name

    with long_wait_noticed(message, NOTICE_AFTER_S):
        found = _wait_for(lambda: _find(known, store, point, is_ours), NOTICE_AFTER_S)
        if found is None:
            PartialState().compare_calls("save_state")  # in debug mode, an error names where rank 0 is instead
            found = _wait_for(lambda: _find(known, store, point, is_ours), _LONGEST_WAIT_S)
    if found is None:
        raise CheckpointError(f"rank 0 has not called save_state within {_LONGEST_WAIT_S / 60:g} minutes. {message}")
    known.done, known.other_since = found.number, None
    return found


class _Known:
    """What a rank knows of the saves in its process group."""

    group: Any = None
    """That group: another one has another store."""
    done = 0
    """The number of the last save that this rank no longer takes part in, nor in any before it."""
    other_since: float | None = None
    """Since when rank 0 has saved only to other folders at this point."""


def _find(known: _Known, store: Any, point: int, is_ours: Callable[[Save], bool]) -> Save | None:
    """The save that is this rank's, if it can be told yet."""
    others: list[Save] = []
    for number in range(known.done + 1, int(store.add(_KEY, 0)) + 1):
        save = Save(store, number, json.loads(store.get(f"{_KEY}/{number}")))
        if save.point == point:
            if is_ours(save):
                return save
            others.append(save)
        elif save.point < point:
            known.done = number
        elif others:
            return others[0]
        else:
            raise CheckpointError(
                f"this rank has called save_state after {point} optimizer steps, but rank 0, which writes the weights, "
                f"has not, and has called it after {save.point}. Call it after the same steps on all ranks, or only on "
                "rank 0"
            )
    if not (others and others[-1].is_over):
        return None
    # Rank 0 may save alone, for instance the best weights, and then with the others, such as the last.
    known.other_since = known.other_since or time.monotonic()
    return others[0] if time.monotonic() - known.other_since > OTHER_FOLDER_AFTER_S else None


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()


def _wait_for(found: Callable[[], T | None], most_s: float | None = None) -> T | None:
    """Waits until something is found, for at most `most_s` seconds. Returns it, or `None`."""
    end, pause = None if most_s is None else time.monotonic() + most_s, _SHORTEST_POLL_S
    while not (result := found()):
        if end is not None and time.monotonic() >= end:
            return None
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_POLL_S)
    return result
