"""Checkpoints of sharded models in the format of one device: rank 0 gathers and writes, each rank loads its part."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from notebook_accel.errors import CheckpointError
from notebook_accel.train.checkpoints import serialization, weights
from notebook_accel.train.checkpoints.contents import StrategyLoad
from notebook_accel.train.checkpoints.layouts import replicated
from notebook_accel.train.tensors.shards import whole


def optimizer_state(optimizer: Optimizer, *, keep: bool) -> dict[str, Any]:
    """Returns the optimizer's full state, as on a single device, on the CPU; all ranks call it.

    Args:
        optimizer: Torch's optimizer.
        keep: Whether this rank writes the state; other ranks get none of it, to save their memory.
    """
    state = optimizer.state_dict()
    states: dict[int, dict[str, Any]] = {}
    for index, entries in state["state"].items():
        found = {name: _whole(value) for name, value in entries.items()}
        if keep:
            states[index] = found
    return {**state, "state": states}


def load(checkpoint: StrategyLoad) -> None:
    """Loads sharded models and optimizers from a checkpoint of unsharded states, on any number of ranks.

    Raises:
        CheckpointError: The folder has no such states, or has those of other models.
    """
    models, optimizers, options = checkpoint.models, checkpoint.optimizers, checkpoint.options
    model_files, optimizer_files = replicated.find(checkpoint.folder, len(models), len(optimizers))
    for model, path in zip(models, model_files, strict=True):
        how = StateDictOptions(full_state_dict=True, strict=options.strict)
        try:
            set_model_state_dict(model, weights.read(path), options=how)  # type: ignore[arg-type]
        except RuntimeError as error:
            raise CheckpointError(f"{path} has the weights of another model: {error}") from error
    for optimizer, path in zip(optimizers, optimizer_files, strict=True):
        state = serialization.load(path, map_location="cpu", **options.load_kwargs)
        replicated.fill_optimizer(optimizer, {**state, "state": _cut(state["state"], optimizer)}, path)


def _whole(value: Any) -> Any:
    if isinstance(value, DTensor):
        # Offloaded shards are on the CPU, but nccl exchanges only tensors on GPUs.
        value = whole(value.to(value.device_mesh.device_type))
    return value.cpu() if isinstance(value, torch.Tensor) else value


def _cut(state: dict[int, dict[str, Any]], optimizer: Optimizer) -> dict[int, dict[str, Any]]:
    """This rank's shard of each parameter's state; counters and the like are not sharded."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]

    def part(value: Any, parameter: torch.Tensor) -> Any:
        if not isinstance(parameter, DTensor) or getattr(value, "shape", None) != parameter.shape:
            return value
        moved = value.to(parameter.device)
        return distribute_tensor(moved, parameter.device_mesh, parameter.placements, src_data_rank=None)

    return {
        index: {name: part(value, parameters[index]) for name, value in entries.items()}
        for index, entries in state.items()
    }
