"""Merges the shards that ranks have written into one set of weights, in a single process."""

from __future__ import annotations

import pickle
import re
import warnings
from pathlib import Path

import torch
from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from notebook_accel.errors import CheckpointError
from notebook_accel.train.checkpoints import weights
from notebook_accel.train.checkpoints.layouts.safe_reader import SafePlanner, SafeReader
from notebook_accel.train.checkpoints.layouts.sharded import MODEL_FOLDER

_INDEX = ".metadata"
_PREFIX = "model."
_MODEL = re.compile(r"pytorch_model_fsdp_(\d+)|(?:pytorch_)?model(?:_(\d+))?\.(?:safetensors|bin)")
"""The folder or file with the weights of a model in a checkpoint."""


def find(checkpoint: Path) -> Path:
    """Finds the folder with a model's shards, given that folder or the checkpoint that contains it.

    Raises:
        CheckpointError: There is no such folder, or there are several.
    """
    if (checkpoint / _INDEX).is_file():
        return checkpoint
    pattern = re.escape(MODEL_FOLDER).replace(r"\{index\}", r"\d+")
    found = sorted(each for each in checkpoint.glob("*") if re.fullmatch(pattern, each.name))
    if not found:
        why = "no such folder" if not checkpoint.is_dir() else "its weights are not sharded, or it is not a checkpoint"
        raise CheckpointError(f"{checkpoint} has no shards to merge ({MODEL_FOLDER.format(index=0)}): {why}")
    if len(found) > 1:
        names = ", ".join(each.name for each in found)
        raise CheckpointError(f"{checkpoint} has the shards of {len(found)} models: give one of {names}")
    return found[0]


def read(folder: Path) -> dict[str, torch.Tensor]:
    """Reads the full weights of a model into the host's memory.

    Raises:
        CheckpointError: They cannot be read.
    """
    try:
        index = SafeReader(folder).read_metadata().state_dict_metadata
        state = {
            name: torch.empty(each.size, dtype=each.properties.dtype)
            for name, each in index.items()
            if isinstance(each, TensorStorageMetadata)
        }
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*assuming the intent is to load in a single process")  # it is
            state_dict_loader.load(state, storage_reader=SafeReader(folder), planner=SafePlanner(), no_dist=True)
    except (CheckpointException, OSError, pickle.UnpicklingError, EOFError) as error:
        raise CheckpointError(f"{folder} cannot be read: {type(error).__name__}: {error}") from error
    return {name.removeprefix(_PREFIX): tensor for name, tensor in state.items()}


def merge(checkpoint: Path, output: Path, max_shard_size: int | str, safe_serialization: bool = True) -> int:
    """Writes the weights of a sharded checkpoint as `Accelerator.save_model` does; returns how many tensors.

    Raises:
        CheckpointError: There are no shards, they cannot be read, or the output cannot be written.
        ConfigurationError: The output is not valid.
    """
    weights.parse_size(max_shard_size)  # before reading, which takes long
    state = read(find(checkpoint))
    _write(state, output, max_shard_size, safe_serialization)
    return len(state)


def convert(checkpoint: Path, output: Path, max_shard_size: int | str) -> dict[Path, int]:
    """Writes the weights of a checkpoint, sharded or not, as safetensors; of several models, each to its own folder.

    Returns:
        The number of tensors of each model, by the folder that it was written to.

    Raises:
        CheckpointError: The checkpoint has no weights, they cannot be read, or the output cannot be written.
        ConfigurationError: The output is not valid.
    """
    weights.parse_size(max_shard_size)
    models = sorted(
        (int(match[1] or match[2] or 0), path)
        for path in checkpoint.iterdir()
        if (match := _MODEL.fullmatch(path.name)) and not (match[0].endswith(".bin") and _has_safe(path))
    )
    if not models:
        raise CheckpointError(f"{checkpoint} has no weights of a model ({MODEL_FOLDER.format(index=0)}, or a file)")
    written = {}
    for index, path in models:
        target = output if len(models) == 1 else output / f"{weights.SAFE_MODEL_NAME}_{index}"
        state = read(path) if path.is_dir() else _read_file(path)
        _write(state, target, max_shard_size)
        written[target] = len(state)
    return written


def _write(
    state: dict[str, torch.Tensor], output: Path, max_shard_size: int | str, safe_serialization: bool = True
) -> None:
    from safetensors import SafetensorError

    try:
        weights.save_model(state, output, max_shard_size, safe_serialization)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"the weights cannot be written to {output}: {error}") from error


def _has_safe(path: Path) -> bool:
    """Whether the same weights are there as safetensors too."""
    safe = path.name.replace(weights.MODEL_NAME, weights.SAFE_MODEL_NAME).replace(".bin", ".safetensors")
    return path.with_name(safe).exists()


def _read_file(path: Path) -> dict[str, torch.Tensor]:
    try:
        return weights.read(path)
    except Exception as error:  # whatever a damaged or hostile file makes of its reader
        raise CheckpointError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
