"""Compares the loaders of a checkpoint that was saved in the middle of an epoch with those that will continue there.

Between epochs, a training may change its loaders and their data: nothing of them is continued.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from notebook_accel.errors import CheckpointError
from notebook_accel.train.checkpoints.contents import LOADER_NAME, file_name
from notebook_accel.train.checkpoints.serialization import load
from notebook_accel.train.data.loader import PreparedLoader


def check(folder: Path, loaders: Sequence[PreparedLoader]) -> list[str]:
    """Describes what has changed about the loaders that a checkpoint continues. All ranks call it.

    Args:
        folder: The checkpoint.
        loaders: Those that are prepared, in order.

    Raises:
        CheckpointError: One that is to be continued is not prepared.
    """
    saved = list(_saved(folder))
    within = {index: loop for index, loop in enumerate(saved) if loop.get("done") or loop.get("passes")}
    counts = f"{_count(len(saved))} prepared, and now {len(loaders)} {'is' if len(loaders) == 1 else 'are'}"
    lost = [index for index in within if index >= len(loaders)]
    if lost:
        raise CheckpointError(
            f"{folder} was saved in the middle of an epoch with {counts}, so that the position in loader {lost[0]} "
            "would be lost, and its samples would be trained on again: prepare the same loaders, in the same order, or "
            "pass another folder as checkpoint= to train from the beginning"
        )
    found = []
    if within and len(saved) != len(loaders):
        continued = " and ".join(f"loader {index}" for index in within)
        found.append(
            f"WARNING: the checkpoint was saved in the middle of an epoch with {counts}. They are told apart by their "
            f"order: {continued} continues, counted from 0, and the others begin anew. If their order has changed, "
            "interrupt the training, and prepare them in the order that they had"
        )
    for index, loop in within.items():
        then, now = loop.get("samples"), loaders[index].sample_count
        if None not in (then, now) and then != now:
            found.append(
                f"WARNING: loader {index} had {then} samples when the checkpoint was saved in the middle of an epoch, "
                f"and has {now} now. The rest of this epoch leaves out as many batches as were done. If the loader "
                "shuffles, its new order differs, so some samples are repeated in this epoch, and others are left "
                "out. Later epochs have all samples"
            )
    return found


def _saved(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Where each loader was in the loop over `Accelerator.epochs`."""
    for index in itertools.count():
        path = folder / file_name(LOADER_NAME, index)
        if not path.is_file():
            return
        yield load(path, map_location="cpu").get("loop") or {}


def _count(loaders: int) -> str:
    return f"{loaders} loader{'' if loaders == 1 else 's'}"
