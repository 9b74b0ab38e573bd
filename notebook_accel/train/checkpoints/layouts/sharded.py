"""Checkpoints of sharded models: each rank writes its part, and any number of ranks can read them.

pytorch_model_fsdp_{i}/   the shards of model i, in the format of torch.distributed.checkpoint
optimizer_{i}/            those of optimizer i

Or rank 0 gathers and writes them in the format of one device, and each rank loads its part.
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
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from notebook_accel.errors import CheckpointError, ConfigurationError
from notebook_accel.train.checkpoints import serialization
from notebook_accel.train.checkpoints import weights as weights_files
from notebook_accel.train.checkpoints.layouts import replicated
from notebook_accel.train.checkpoints.layouts.layout import (
    Layout,
    LoadOptions,
    Models,
    Optimizers,
    SaveOptions,
    State,
    States,
)
from notebook_accel.train.checkpoints.layouts.safe_reader import SafePlanner, SafeReader
from notebook_accel.train.checkpoints.parts import Part
from notebook_accel.train.ranks.state import PartialState
from notebook_accel.train.tensors.shards import full_tensor

MODEL_FOLDER = "pytorch_model_fsdp_{index}"
OPTIMIZER_FOLDER = "optimizer_{index}"
BUFFERS_FILE = "buffers_{index}_rank{rank}.bin"


class Sharded(Layout):
    """Each rank writes its part."""

    writes_together = True

    def weights(self, models: Models) -> list[State]:
        return []

    def parts(self, models: Models, weights: States, optimizers: Optimizers, options: SaveOptions) -> list[Part]:
        found = []
        for index, model in enumerate(models, options.first):
            state = get_model_state_dict(model)
            found.append(_shards({"model": state}, MODEL_FOLDER.format(index=index), options.group))
            own = {name: each for name, each in state.items() if _is_own(each)}
            if own:
                name = BUFFERS_FILE.format(index=index, rank=dist.get_rank())
                found.append(Part(own, functools.partial(_write_buffers, name, index)))
        for index, optimizer in enumerate(optimizers, options.first):
            states = {"optimizer": _optimizer_state(_owner([*models, *options.owners], optimizer), optimizer)}
            found.append(_shards(states, OPTIMIZER_FOLDER.format(index=index), options.group))
        return found

    def load(self, folder: Path, models: Models, optimizers: Optimizers, options: LoadOptions) -> None:
        names = (name.format(index=options.first) for name in (MODEL_FOLDER, OPTIMIZER_FOLDER))
        is_in_shards = any((folder / name).is_dir() for name in names)
        (_load_shards if is_in_shards else _load_gathered)(folder, models, optimizers, options)


class Gathered(Sharded):
    """Rank 0 gathers and writes everything, in the format of one device."""

    writes_together = False

    def weights(self, models: Models) -> list[State]:
        return [self.strategy.state_dict(model) for model in models]

    def parts(self, models: Models, weights: States, optimizers: Optimizers, options: SaveOptions) -> list[Part]:
        states = [_full_state(self.strategy.optimizer_state(each), keep=options.writes) for each in optimizers]
        if options.writes and not PartialState().is_main_process:
            raise ConfigurationError(
                "state_dict_type='FULL_STATE_DICT' gathers all weights on rank 0, but save_on_each_node=True needs "
                "them on every machine: use SHARDED_STATE_DICT, or a folder that the machines share"
            )
        return replicated.parts(weights, states, options)


def _load_shards(folder: Path, models: Models, optimizers: Optimizers, options: LoadOptions) -> None:
    _refuse_missing(folder, len(models), len(optimizers), options.first)
    for index, model in enumerate(models, options.first):
        state: dict[str, Any] = {"model": get_model_state_dict(model)}
        _read(state, folder / MODEL_FOLDER.format(index=index))
        if len(list(folder.glob(BUFFERS_FILE.format(index=index, rank="*")))) == dist.get_world_size():
            own = serialization.load(
                folder / BUFFERS_FILE.format(index=index, rank=dist.get_rank()), map_location="cpu"
            )
            state["model"].update(own)
        set_model_state_dict(model, state["model"], options=StateDictOptions(strict=options.strict))
    for index, optimizer in enumerate(optimizers, options.first):
        owner = _owner([*models, *options.owners], optimizer)
        state = {"optimizer": _filled_state(owner, optimizer)}
        planner = _OptimizerPlanner()
        _read(state, folder / OPTIMIZER_FOLDER.format(index=index), planner)
        set_optimizer_state_dict(owner, optimizer, state["optimizer"])
        if planner.is_unused:
            optimizer.state.clear()


def _load_gathered(folder: Path, models: Models, optimizers: Optimizers, options: LoadOptions) -> None:
    model_files, optimizer_files = replicated.find(folder, len(models), len(optimizers), options.first)
    for model, path in zip(models, model_files, strict=True):
        how = StateDictOptions(full_state_dict=True, strict=options.strict)
        try:
            set_model_state_dict(model, weights_files.read(path), options=how)  # type: ignore[arg-type]
        except RuntimeError as error:
            raise CheckpointError(f"{path} has the weights of another model: {error}") from error
    for optimizer, path in zip(optimizers, optimizer_files, strict=True):
        state = serialization.load(path, map_location="cpu", **options.load_kwargs)
        replicated.fill_optimizer(optimizer, {**state, "state": _cut(state["state"], optimizer)}, path)


def _full_state(state: dict[str, Any], *, keep: bool) -> dict[str, Any]:
    """An optimizer's full state, as on a single device, on the CPU; all ranks call it.

    Args:
        state: What this rank has of it.
        keep: Whether this rank writes the state; other ranks get none of it, to save their memory.
    """
    states: dict[int, dict[str, Any]] = {}
    for index, entries in state["state"].items():
        found = {name: _on_host(value) for name, value in entries.items()}
        if keep:
            states[index] = found
    return {**state, "state": states}


def _optimizer_state(owner: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """The state of an optimizer; empty before its first step.

    Torch fills an empty state with a step with zero gradients, which would count as the first.
    """
    is_unused = not any(optimizer.state.values())
    state = _filled_state(owner, optimizer)
    if is_unused:
        optimizer.state.clear()
        state["state"] = {}
    return state


def _filled_state(owner: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """The state of an optimizer, which is filled if it is empty.

    The step with which torch fills it has to leave everything else as it is: schedule-free optimizers also count their
    steps, and take one only in training mode.
    """
    if any(optimizer.state.values()):
        return get_optimizer_state_dict(owner, optimizer)
    before = [dict(group) for group in optimizer.param_groups]
    if hasattr(optimizer, "train"):
        optimizer.train()
    optimizer.state.clear()  # of the empty states that looking for one leaves behind, which torch would not fill
    state = get_optimizer_state_dict(owner, optimizer)
    pairs = list(zip(optimizer.param_groups, before, strict=True))
    if any(group[name] is not value for group, own in pairs for name, value in own.items()):
        for group, own in pairs:
            group.update(own)
        state = get_optimizer_state_dict(owner, optimizer)
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
    serialization.write_safe(state, folder / name, f"the buffers of model {index}")


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


def _refuse_missing(folder: Path, models: int, optimizers: int, first: int) -> None:
    wanted = [MODEL_FOLDER.format(index=index) for index in range(first, first + models)]
    wanted += [OPTIMIZER_FOLDER.format(index=index) for index in range(first, first + optimizers)]
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


def _on_host(value: Any) -> Any:
    if isinstance(value, DTensor):
        # Offloaded shards are on the CPU, but nccl exchanges only tensors on GPUs.
        value = full_tensor(value.to(value.device_mesh.device_type))
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
