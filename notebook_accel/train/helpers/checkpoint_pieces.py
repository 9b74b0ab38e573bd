"""Writes and reads checkpoints piece by piece, under the names of Accelerate's functions, in the files of `save_state`.

All ranks call these functions together. If one fails on one rank, it raises on all.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim import Optimizer

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.checkpoints import layouts
from notebook_accel.train.checkpoints.all_ranks import AllRanks
from notebook_accel.train.checkpoints.contents import Contents, custom_part, read_custom
from notebook_accel.train.checkpoints.layouts import merging
from notebook_accel.train.checkpoints.layouts.layout import LaidOut, Layout, LoadOptions, SaveOptions
from notebook_accel.train.checkpoints.layouts.sharded import MODEL_FOLDER, OPTIMIZER_FOLDER
from notebook_accel.train.checkpoints.serialization import is_writer
from notebook_accel.train.models import parallel_wrappers
from notebook_accel.train.ranks.state import PartialState
from notebook_accel.train.steps.optimizer import inner as own_optimizer
from notebook_accel.train.strategies.base import Settings
from notebook_accel.train.strategies.single import SingleDevice

Folder = str | os.PathLike[str]


class HasStrategy(Protocol):
    """What is needed of an `Accelerator`."""

    @property
    def strategy(self) -> LaidOut: ...


def save_fsdp_model(
    fsdp_plugin: Any,
    accelerator: HasStrategy,
    model: nn.Module,
    output_dir: Folder,
    model_index: int = 0,
    adapter_only: bool = False,
    use_dcp: bool = True,
) -> None:
    """Writes the weights of a prepared model as `save_state` does: its shards, or all weights if nothing is sharded.

    Args:
        fsdp_plugin: Not used: the model is written as the Accelerator has distributed it.
        accelerator: The Accelerator that has prepared it.
        model: The model.
        output_dir: The folder of the checkpoint.
        model_index: The number of the model, in the name of its files.
        adapter_only: Must be `False`.
        use_dcp: Must be `True`: shards are written by `torch.distributed.checkpoint`.
    """
    _refuse(adapter_only, use_dcp)
    models, layout = [parallel_wrappers.innermost(model)], layouts.of(accelerator.strategy)
    _write(layout, models, [], output_dir, SaveOptions(writes=PartialState().is_main_process, first=model_index))


def load_fsdp_model(
    fsdp_plugin: Any,
    accelerator: HasStrategy,
    model: nn.Module,
    input_dir: Folder,
    model_index: int = 0,
    adapter_only: bool = False,
    use_dcp: bool = True,
) -> None:
    """Loads the weights of a prepared model; see `save_fsdp_model`.

    Args:
        fsdp_plugin: Not used.
        accelerator: The Accelerator that has prepared it.
        model: The model.
        input_dir: The folder of the checkpoint, or that of the shards in it.
        model_index: The number of the model, in the name of its files.
        adapter_only: Must be `False`.
        use_dcp: Must be `True`.
    """
    _refuse(adapter_only, use_dcp)
    folder = _checkpoint(input_dir, MODEL_FOLDER.format(index=model_index))
    layout, options = layouts.of(accelerator.strategy), LoadOptions(first=model_index)
    AllRanks().run("read the model", lambda: layout.load(folder, [parallel_wrappers.innermost(model)], [], options))


def save_fsdp_optimizer(
    fsdp_plugin: Any,
    accelerator: HasStrategy,
    optimizer: Optimizer,
    model: nn.Module,
    output_dir: Folder,
    optimizer_index: int = 0,
    use_dcp: bool = True,
) -> None:
    """Writes the state of a prepared optimizer as `save_state` does; see `save_fsdp_model`.

    Args:
        fsdp_plugin: Not used.
        accelerator: The Accelerator that has prepared it.
        optimizer: The optimizer.
        model: The prepared model whose parameters it has.
        output_dir: The folder of the checkpoint.
        optimizer_index: The number of the optimizer, in the name of its files.
        use_dcp: Must be `True`.
    """
    _refuse(use_dcp=use_dcp)
    owners = [parallel_wrappers.innermost(model)]
    options = SaveOptions(writes=PartialState().is_main_process, first=optimizer_index, owners=owners)
    _write(layouts.of(accelerator.strategy), [], [own_optimizer(optimizer)], output_dir, options)


def load_fsdp_optimizer(
    fsdp_plugin: Any,
    accelerator: HasStrategy,
    optimizer: Optimizer,
    model: nn.Module,
    input_dir: Folder,
    optimizer_index: int = 0,
    adapter_only: bool = False,
    use_dcp: bool = True,
) -> None:
    """Loads the state of a prepared optimizer; see `save_fsdp_optimizer`.

    Args:
        fsdp_plugin: Not used.
        accelerator: The Accelerator that has prepared it.
        optimizer: The optimizer.
        model: The prepared model whose parameters it has.
        input_dir: The folder of the checkpoint, or that of the shards in it.
        optimizer_index: The number of the optimizer, in the name of its files.
        adapter_only: Without effect: the optimizer has the parameters that it was given.
        use_dcp: Must be `True`.
    """
    _refuse(use_dcp=use_dcp)
    folder = _checkpoint(input_dir, OPTIMIZER_FOLDER.format(index=optimizer_index))
    layout = layouts.of(accelerator.strategy)
    options = LoadOptions(first=optimizer_index, owners=[parallel_wrappers.innermost(model)])
    AllRanks().run("read the optimizer", lambda: layout.load(folder, [], [own_optimizer(optimizer)], options))


def merge_fsdp_weights(
    checkpoint_dir: Folder, output_path: Folder, safe_serialization: bool = True, remove_checkpoint_dir: bool = False
) -> None:
    """Writes the sharded weights of a checkpoint as one file, on the main rank, as `notebook-accel merge-weights` does.

    Args:
        checkpoint_dir: The checkpoint, or the folder of one model in it.
        output_path: The folder to write to.
        safe_serialization: Whether to write safetensors rather than torch's pickle.
        remove_checkpoint_dir: Whether to remove the shards afterwards.

    Raises:
        CheckpointError: There are no shards, or they cannot be read.
    """
    state = PartialState()
    if state.is_main_process:
        merging.merge(Path(checkpoint_dir), Path(output_path), "10GB", safe_serialization)
        if remove_checkpoint_dir:
            shutil.rmtree(checkpoint_dir)
    state.wait_for_everyone()


def save_custom_state(obj: Any, path: Folder, index: int = 0, save_on_each_node: bool = False) -> None:
    """Writes the state of an object, as `save_state` does for those that are registered; only one rank does so.

    Args:
        obj: The object, with a method `state_dict`.
        path: The folder of the checkpoint.
        index: The number of the object, in the name of the file.
        save_on_each_node: Whether one rank of each node writes it.

    Raises:
        ConfigurationError: The state could not be read back without running code.
    """
    if is_writer(save_on_each_node):
        custom_part(obj, index).write(Path(path))


def load_custom_state(obj: Any, path: Folder, index: int = 0) -> None:
    """Loads the state of an object that `save_custom_state` or `save_state` has written.

    Args:
        obj: The object, with a method `load_state_dict`.
        path: The folder of the checkpoint.
        index: The number of the object, in the name of the file.
    """
    read_custom(obj, Path(path), index)


def save_accelerator_state(
    output_dir: Folder,
    model_states: Sequence[dict[str, torch.Tensor]],
    optimizers: Sequence[Optimizer],
    schedulers: Sequence[Any],
    dataloaders: Sequence[Any],
    process_index: int,
    step: int,
    scaler: torch.amp.GradScaler | None = None,
    save_on_each_node: bool = False,
    safe_serialization: bool = True,
) -> Path:
    """Writes the state of a run whose weights are complete, with the random states of this rank.

    Args:
        output_dir: The folder, which must exist.
        model_states: The weights of each model.
        optimizers: The optimizers.
        schedulers: The schedulers.
        dataloaders: The loaders; those that are prepared save their positions.
        process_index: The number of this rank.
        step: The number of steps to store.
        scaler: The gradient scaler, if there is one.
        save_on_each_node: Whether one rank of each node writes what all have.
        safe_serialization: Whether weights are written as safetensors.

    Returns:
        The folder.
    """
    contents = _contents([], optimizers, schedulers, dataloaders, process_index, scaler, step)
    options = SaveOptions(safe_serialization, is_writer(save_on_each_node))
    contents.write(Path(output_dir), model_states, options)
    return Path(output_dir)


def load_accelerator_state(
    input_dir: Folder,
    models: Sequence[nn.Module],
    optimizers: Sequence[Optimizer],
    schedulers: Sequence[Any],
    dataloaders: Sequence[Any],
    process_index: int,
    scaler: torch.amp.GradScaler | None = None,
    map_location: Any = None,
    load_kwargs: dict[str, Any] | None = None,
    strict: bool = True,
) -> dict[str, Any]:
    """Loads the state of a run that `save_accelerator_state` has written.

    Args:
        input_dir: The folder.
        models: The models.
        optimizers: The optimizers.
        schedulers: The schedulers.
        dataloaders: The loaders.
        process_index: The number of this rank.
        scaler: The gradient scaler, if there is one.
        map_location: Where optimizer states are loaded first: `cpu`, the default, or `on_device`.
        load_kwargs: More arguments of `torch.load`, for optimizers and schedulers.
        strict: Whether the weights must be exactly the model's.

    Returns:
        The attributes of an Accelerator to set: its `step`.
    """
    where = PartialState().device if map_location == "on_device" else "cpu"
    inner = [parallel_wrappers.innermost(model) for model in models]
    contents = _contents(inner, optimizers, schedulers, dataloaders, process_index, scaler, 0)
    return {"step": contents.read(Path(input_dir), inner, LoadOptions(strict, where, load_kwargs or {}))}


def _contents(
    models: list[nn.Module],
    optimizers: Sequence[Optimizer],
    schedulers: Sequence[Any],
    loaders: Sequence[Any],
    rank: int,
    scaler: Any,
    step: int,
) -> Contents:
    if rank != PartialState().process_index:
        raise ConfigurationError(
            f"process_index={rank} is not this rank, which is number {PartialState().process_index}: pass "
            "accelerator.process_index"
        )
    return Contents(
        strategy=SingleDevice(PartialState(), Settings()),  # the user's code has collected what ranks have parts of
        models=models,
        optimizers=[own_optimizer(optimizer) for optimizer in optimizers],
        schedulers=list(schedulers),
        loaders=[loader for loader in loaders if hasattr(loader, "state_dict")],
        scaler=scaler,
        custom=None,
        step=step,
    )


def _write(
    layout: Layout, models: list[nn.Module], optimizers: list[Optimizer], output_dir: Folder, options: SaveOptions
) -> None:
    folder, ranks = Path(output_dir), AllRanks()
    ranks.run_on_each_node("prepare the folder", lambda: folder.mkdir(parents=True, exist_ok=True))

    def write() -> None:
        for part in layout.parts(models, layout.weights(models), optimizers, options):
            part.write(folder)

    ranks.run("write the checkpoint", write)


def _checkpoint(folder: Folder, part: str) -> Path:
    """The folder of a checkpoint, given that or the folder of a part of it."""
    path = Path(folder)
    return path.parent if path.name == part else path


def _refuse(adapter_only: bool = False, use_dcp: bool = True) -> None:
    if adapter_only:
        raise ConfigurationError(
            "adapter_only=True is not supported: save the adapter with model.save_pretrained(folder, "
            "state_dict=accelerator.get_state_dict(model))"
        )
    if not use_dcp:
        raise ConfigurationError(
            "use_dcp=False is not supported, because shards are written by torch.distributed.checkpoint: leave it out"
        )
