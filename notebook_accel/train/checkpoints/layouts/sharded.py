"""Checkpoints of sharded models: each rank writes its part, and any number of ranks can read them.

pytorch_model_fsdp_{i}/   the shards of model i, in the format of torch.distributed.checkpoint
optimizer_{i}/            those of optimizer i
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from notebook_accel.errors import CheckpointError
from notebook_accel.train.checkpoints.layouts.safe_reader import SafePlanner, SafeReader
from notebook_accel.train.checkpoints.parts import Part
from notebook_accel.train.checkpoints.serialization import load as load_file
from notebook_accel.train.checkpoints.serialization import write_safe

MODEL_FOLDER = "pytorch_model_fsdp_{index}"
OPTIMIZER_FOLDER = "optimizer_{index}"
BUFFERS_FILE = "buffers_{index}_rank{rank}.bin"


def parts(models: Sequence[nn.Module], optimizers: Sequence[Optimizer], group: Any = None) -> list[Part]:
    """This rank's parts; called on all ranks.

    Args:
        models: The models.
        optimizers: Torch's optimizers.
        group: The process group with which ranks agree on what each writes; `None` for all ranks' usual one.

    Raises:
        CheckpointError: When they are written, if they cannot be.
    """
    found = []
    for index, model in enumerate(models):
        state = get_model_state_dict(model)
        found.append(_shards({"model": state}, MODEL_FOLDER.format(index=index), group))
        own = {name: each for name, each in state.items() if _is_own(each)}
        if own:
            name = BUFFERS_FILE.format(index=index, rank=dist.get_rank())
            found.append(Part(own, functools.partial(_write_buffers, name, index)))
    for index, optimizer in enumerate(optimizers):
        states = {"optimizer": _optimizer_state(_owner(models, optimizer), optimizer)}
        found.append(_shards(states, OPTIMIZER_FOLDER.format(index=index), group))
    return found


def is_in_shards(folder: Path) -> bool:
    """Whether a checkpoint contains sharded weights."""
    return (folder / MODEL_FOLDER.format(index=0)).is_dir()


def load(folder: Path, models: Sequence[nn.Module], optimizers: Sequence[Optimizer], strict: bool = True) -> None:
    """Loads models and optimizers whose `parts` were written on any number of ranks; called on all ranks.

    Raises:
        CheckpointError: The folder has no shards for them, or they cannot be read.
    """
    _refuse_missing(folder, len(models), len(optimizers))
    for index, model in enumerate(models):
        state: dict[str, Any] = {"model": get_model_state_dict(model)}
        _read(state, folder / MODEL_FOLDER.format(index=index))
        if len(list(folder.glob(BUFFERS_FILE.format(index=index, rank="*")))) == dist.get_world_size():
            own = load_file(folder / BUFFERS_FILE.format(index=index, rank=dist.get_rank()), map_location="cpu")
            state["model"].update(own)
        set_model_state_dict(model, state["model"], options=StateDictOptions(strict=strict))
    for index, optimizer in enumerate(optimizers):
        owner = _owner(models, optimizer)
        state = {"optimizer": get_optimizer_state_dict(owner, optimizer)}
        planner = _OptimizerPlanner()
        _read(state, folder / OPTIMIZER_FOLDER.format(index=index), planner)
        set_optimizer_state_dict(owner, optimizer, state["optimizer"])
        if planner.is_unused:
            optimizer.state.clear()


def _optimizer_state(owner: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """The state of an optimizer; empty before its first step.

    Torch fills an empty state with a step with zero gradients, which would count as the first.
    """
    is_unused = not optimizer.state
    state = get_optimizer_state_dict(owner, optimizer)
    if is_unused:
        optimizer.state.clear()
        state["state"] = {}
    return state


class _OptimizerPlanner(SafePlanner):
    """Reads the state of an optimizer, which is empty if it was saved before the first step."""

    is_unused = False

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        assert metadata is not None
        self.is_unused = not any(key.startswith("optimizer.state.") for key in metadata.state_dict_metadata)
        if self.is_unused:
            state_dict["optimizer"]["state"].clear()
        super().set_up_planner(state_dict, metadata, is_coordinator)


def _shards(state: dict[str, Any], name: str, group: Any) -> Part:
    return Part(state, lambda state, folder: _write(state, folder / name, group))


def _write(state: dict[str, Any], folder: Path, group: Any) -> None:
    # Tensors that several ranks hold are written once; buffers that differ between ranks get separate files.
    planner = DefaultSavePlanner(dedup_save_to_lowest_rank=True)
    with _translated("write", folder):
        state_dict_saver.save(state, checkpoint_id=folder, planner=planner, process_group=group)


def _write_buffers(name: str, index: int, state: dict[str, Any], folder: Path) -> None:
    write_safe(state, folder / name, f"the buffers of model {index}")


def _read(state: dict[str, Any], folder: Path, planner: SafePlanner | None = None) -> None:
    with _translated("read", folder):
        state_dict_loader.load(state, storage_reader=SafeReader(folder), planner=planner or SafePlanner())


@contextlib.contextmanager
def _translated(task: str, folder: Path) -> Iterator[None]:
    """Turns torch's error, which is raised on every rank and is not an `Exception`, into a `CheckpointError`."""
    try:
        yield
    except CheckpointException as error:
        rank, (cause, _) = next(iter(error.failures.items()))
        text = f"rank {rank} could not {task} {folder}: {type(cause).__name__}: {cause}"
        raise CheckpointError(text) from cause


def _is_own(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not isinstance(value, DTensor)


def _owner(models: Sequence[nn.Module], optimizer: Optimizer) -> nn.Module:
    """The model whose parameters an optimizer has, or all models together."""
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    owners = [model for model in models if any(id(parameter) in held for parameter in model.parameters())]
    return owners[0] if len(owners) == 1 else nn.ModuleList(owners)


def _refuse_missing(folder: Path, models: int, optimizers: int) -> None:
    wanted = [MODEL_FOLDER.format(index=index) for index in range(models)]
    wanted += [OPTIMIZER_FOLDER.format(index=index) for index in range(optimizers)]
    missing = [name for name in wanted if not (folder / name).is_dir()]
    if not missing:
        return
    whole = any((folder / name).is_file() for name in ("model.safetensors", "pytorch_model.bin"))
    raise CheckpointError(
        f"{folder} has no {', '.join(missing)}: "
        + (
            "it was saved with unsharded weights (one device, or DDP), but this run shards them. Load it with the "
            "strategy it was saved with, or only its weights, before prepare, with load_checkpoint_in_model."
            if whole
            else "it was saved with fewer models or optimizers, or is not a checkpoint."
        )
    )
