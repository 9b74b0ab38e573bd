"""Continues a training from the newest checkpoint of its folder, at the batch where that was saved."""

from __future__ import annotations

import functools
from pathlib import Path

from notebook_accel.errors import CheckpointError, ConfigurationError, NotebookAccelError
from notebook_accel.train.accelerator import changed_loaders
from notebook_accel.train.checkpoints import background, seal
from notebook_accel.train.checkpoints.checkpoint import Checkpoints
from notebook_accel.train.checkpoints.contents import Contents, read_random_states
from notebook_accel.train.checkpoints.remote.path import AnyPath, RemotePath
from notebook_accel.train.checkpoints.seal import Place
from notebook_accel.train.data.loader import PreparedLoader
from notebook_accel.train.data.loader_position import Position
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
    place = seal.place(local)
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
    for line in changed_loaders.check(local, contents.loaders):
        background.report(line)
    for loader in contents.loaders:
        loader.progress.position = _position(loader, local, state)
    return place, step


def describe(found: AnyPath, place: Place, epochs: int, settings: Environment, state: PartialState) -> str:
    """Says where a training of `epochs` epochs resumes."""
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
        loader.progress.begin(is_active)


def _position(loader: PreparedLoader, folder: Path, state: PartialState) -> Position | None:
    """Where the loader continues, after its state in a checkpoint was loaded."""
    saved = loader.progress.saved
    if saved is None or not (saved["done"] or saved["passes"]):
        return None
    then, now = saved["total_batch_size"], loader._total_batch_size
    if then is None or now is None:
        then, now = saved["ranks"], loader.num_processes
    ahead = saved["ahead"] if saved["ranks"] == loader.num_processes else None
    return Position(
        passes=saved["passes"],
        skipped=saved["done"] * then // now,
        on_skipped=None if ahead is None else functools.partial(random_states.restore, ahead, state.device),
        on_resumed=functools.partial(read_random_states, folder),
    )
