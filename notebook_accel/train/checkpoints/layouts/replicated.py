"""Checkpoints of models that every rank holds as a whole: one rank writes them, and every rank reads all of them.

model[_i].safetensors    the weights of model i, or model[_i].bin if they are pickled
optimizer[_i].bin        the state of optimizer i
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from notebook_accel.errors import CheckpointError
from notebook_accel.train.checkpoints import serialization
from notebook_accel.train.checkpoints import weights as weights_files
from notebook_accel.train.checkpoints.layouts.layout import (
    Layout,
    LoadOptions,
    Models,
    Optimizers,
    SaveOptions,
    State,
    States,
)
from notebook_accel.train.checkpoints.parts import OPTIMIZER_NAME, Part, file_name, safe_part


class Replicated(Layout):
    """Unsharded weights and optimizer states, written by the ranks whose options say so."""

    def weights(self, models: Models) -> list[State]:
        return [self.strategy.state_dict(model) for model in models]

    def parts(self, models: Models, weights: States, optimizers: Optimizers, options: SaveOptions) -> list[Part]:
        return parts(weights, [self.strategy.optimizer_state(each) for each in optimizers], options)

    def load(self, folder: Path, models: Models, optimizers: Optimizers, options: LoadOptions) -> None:
        model_files, optimizer_files = find(folder, len(models), len(optimizers), options.first)
        for model, path in zip(models, model_files, strict=True):
            weights_files.fill(model, iter([weights_files.read(path)]), strict=options.strict, source=str(path))
        for optimizer, path in zip(optimizers, optimizer_files, strict=True):
            state = serialization.load(path, map_location=options.map_location, **options.load_kwargs)
            fill_optimizer(optimizer, state, path)


def parts(state_dicts: Sequence[State], optimizer_states: Sequence[dict[str, Any]], options: SaveOptions) -> list[Part]:
    """Unsharded weights and optimizer states, on the ranks whose options say that they write them."""
    if not options.writes:
        return []
    safe = options.safe_serialization
    found = [
        Part(state, functools.partial(_write_weights, _weights_name(index, safe), safe))
        for index, state in enumerate(state_dicts, options.first)
    ]
    return found + [
        safe_part(state, file_name(OPTIMIZER_NAME, index), f"optimizer {index}")
        for index, state in enumerate(optimizer_states, options.first)
    ]


def fill_optimizer(optimizer: Optimizer, state: dict[str, Any], source: Path) -> None:
    """Loads the state of an optimizer.

    Raises:
        CheckpointError: It is that of an optimizer of another kind, which torch would notice only in the next step.
    """
    # torch adds a default that only its own optimizers have.
    needed = [optimizer.defaults.keys() & group.keys() for group in optimizer.param_groups]
    optimizer.load_state_dict(state)
    missing = {
        name for group, names in zip(optimizer.param_groups, needed, strict=True) for name in names - group.keys()
    }
    if missing:
        raise CheckpointError(
            f"{source} has the state of another kind of optimizer: it lacks {', '.join(sorted(missing))}, which "
            f"{type(optimizer).__name__} needs. Prepare the kind that it was saved with, or load only the weights, "
            "before prepare, with load_checkpoint_in_model."
        )


def find(folder: Path, models: int, optimizers: int, first: int = 0) -> tuple[list[Path], list[Path]]:
    """The files of unsharded weights and optimizer states, for these numbers of models and optimizers from `first` on.

    Raises:
        CheckpointError: The folder has fewer.
    """
    found = [_find_weights(folder, index) for index in range(first, first + models)]
    paths = [folder / file_name(OPTIMIZER_NAME, index) for index in range(first, first + optimizers)]
    lacking = [path.name for path in paths if not path.is_file()]
    if lacking:
        raise CheckpointError(
            f"{folder} has no {', '.join(lacking)}: {optimizers} optimizers are prepared here. Prepare those that "
            "were prepared when it was saved."
        )
    return found, paths


def _write_weights(name: str, safe_serialization: bool, state: State, folder: Path) -> None:
    weights_files.write(state, folder / name, safe_serialization)


def _weights_name(index: int, safe_serialization: bool) -> str:
    if safe_serialization:
        return file_name(weights_files.SAFE_MODEL_NAME, index, ".safetensors")
    return file_name(weights_files.MODEL_NAME, index, ".bin")


def _find_weights(folder: Path, index: int) -> Path:
    for safe in (True, False):
        path = folder / _weights_name(index, safe)
        if path.is_file():
            return path
    sharded = (folder / "pytorch_model_fsdp_0").is_dir()
    raise CheckpointError(
        f"{folder} has no {_weights_name(index, True)}: "
        + (
            "its weights are sharded, as FSDP saves them, but here every rank holds all weights. Load it with an "
            "FSDP plugin; with state_dict_type='FULL_STATE_DICT', it saves checkpoints that can be loaded here."
            if sharded
            else "it was saved with fewer models, is not a checkpoint, or was written on another machine (then see "
            "ProjectConfiguration.save_on_each_node)."
        )
    )
