"""Continues a training run from the newest checkpoint of its folder, at the batch where that was saved."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from notebook_accel.errors import CheckpointError, ConfigurationError, NotebookAccelError
from notebook_accel.rank_spans import counted
from notebook_accel.train.checkpoints import background, manifest
from notebook_accel.train.checkpoints.checkpoint import Checkpoints
from notebook_accel.train.checkpoints.contents import Contents, read_random_states
from notebook_accel.train.checkpoints.manifest import Place
from notebook_accel.train.checkpoints.parts import LOADER_NAME, file_name
from notebook_accel.train.checkpoints.remote_path import AnyPath, RemotePath
from notebook_accel.train.checkpoints.serialization import load as load_file
from notebook_accel.train.data.loader import PreparedLoader
from notebook_accel.train.ranks import random_states
from notebook_accel.train.ranks.environment import Environment
from notebook_accel.train.ranks.gradient_state import GradientState
from notebook_accel.train.ranks.state import PartialState


def newest(folder: AnyPath, settings: Environment) -> AnyPath | None:
    """The newest complete checkpoint of a folder; `None` if there is none.

    Raises:
        ConfigurationError: There is one, but the launch has `resume=False`.
    """
    found = background.newest(folder)
    if found is not None and not settings.checkpoint_resume and not settings.attempt:
        raise ConfigurationError(
            f"{folder} has the checkpoints of an earlier run, such as {found.name}, but resume=False does not "
            "continue from them: name another folder, remove this one, or leave resume out"
        )
    return found


def load(found: AnyPath, contents: Contents, checkpoints: Checkpoints, state: PartialState) -> tuple[Place, int]:
    """Loads a checkpoint into the prepared objects, and makes their loaders leave out the batches that were done.

    Returns:
        Where in the training it was saved, and the number of steps for `Accelerator.step`.

    Raises:
        CheckpointError: It doesn't fit these objects.
    """
    local = background.local_copy(found)
    place = manifest.place(local)
    try:
        step = checkpoints.load(contents, local)
    except NotebookAccelError:
        raise
    except Exception as error:  # of torch, or of a registered object
        raise CheckpointError(
            f"{found} can't be loaded into what is prepared here ({type(error).__name__}: {error}). It was probably "
            "saved by another version of this code: prepare the same model, optimizer, and schedulers, and register "
            "the same objects, as then, or pass another folder as checkpoint= to train from the beginning"
        ) from error
    for line in _changed_loaders(local, contents.loaders):
        background.report(line)
    for loader in contents.loaders:
        loader.resume_loop(
            lambda states: random_states.restore(states, state.device), functools.partial(read_random_states, local)
        )
    return place, step


def describe(found: AnyPath, place: Place, epochs: int, settings: Environment, state: PartialState) -> str:
    """Says where a training run of `epochs` epochs resumes."""
    # As the user wrote the folder.
    name = found if isinstance(found, RemotePath) else Path(settings.checkpoint_dir) / found.name
    is_over = place.epoch >= epochs
    where = "where the training was finished" if is_over else f"in epoch {place.epoch}"
    skipped = ", so no epoch is left to train" if is_over else ""
    ranks = "" if place.ranks == state.num_processes else f", which {place.ranks} ranks saved"
    return f"resuming from {name}{ranks}: {where}, after {place.step} steps{skipped}"


def begin_epoch(contents: Contents, gradients: GradientState) -> None:
    """Makes the loaders count from the beginning of an epoch, except one that has an iterator with batches left."""
    active = gradients.dataloader_references
    for loader in contents.loaders:
        is_active = any(each is loader for each in active) and not loader.end_of_dataloader
        loader.cursor.begin_loop(is_active=is_active)


def _changed_loaders(folder: Path, loaders: Sequence[PreparedLoader]) -> list[str]:
    """Describes what has changed about the loaders that a checkpoint continues. All ranks call it.

    Between epochs, a training run may change its loaders and their data: nothing of them is continued.

    Args:
        folder: The checkpoint.
        loaders: Those that are prepared, in order.

    Raises:
        CheckpointError: A loader in whose middle training continues is not prepared.
    """
    saved = list(_saved(folder))
    within = {index: loop for index, loop in enumerate(saved) if loop.get("done") or loop.get("passes")}
    counts = f"{counted(len(saved), 'loader')} prepared, and now {len(loaders)} {'is' if len(loaders) == 1 else 'are'}"
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
            f"order: {continued} continues, counted from 0, and the others start over. If their order has changed, "
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
        yield load_file(path, map_location="cpu").get("loop") or {}
