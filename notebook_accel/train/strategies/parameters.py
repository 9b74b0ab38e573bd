"""What strategies do with parameters: make initial weights equal on all ranks, and update optimizers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.ranks.state import PartialState
from notebook_accel.train.tensors.shards import is_dtensor


def broadcast_initial_state(model: nn.Module) -> None:
    """Copies the weights and buffers of rank 0 to all ranks, except those that are split already."""
    take_from_first(each for each in _tensors(model) if not each.is_meta and not is_dtensor(each))


@torch.no_grad()
def equalize_replicas(model: nn.Module) -> None:
    """Makes equal what several ranks hold of a model that each of them has initialized itself; all ranks call it."""
    broadcast_initial_state(model)
    for tensor in _tensors(model):
        if not is_dtensor(tensor):
            continue
        mesh, local = tensor.device_mesh, tensor.to_local().detach()
        for dimension, placement in enumerate(tensor.placements):
            if placement.is_replicate() and mesh.size(dimension) > 1:
                sent = local.to(mesh.device_type)  # offloaded ones are on the CPU, where nccl can't send
                dist.broadcast(sent, group=mesh.get_group(dimension), group_src=0)
                local.copy_(sent)


@torch.no_grad()
def take_from_first(tensors: Iterable[torch.Tensor]) -> None:
    """Copies tensors of rank 0 to all ranks, which call it together."""
    communicator = PartialState().communicator
    for tensor in tensors:
        tensor.copy_(communicator.broadcast(tensor.detach(), 0))


def _tensors(model: nn.Module) -> Iterator[Any]:
    yield from model.parameters()
    yield from model.buffers()


def allocate_on_cpu(module: nn.Module) -> None:
    """Gives parameters and buffers that are on the meta device memory of this host, with arbitrary values."""
    made: dict[int, nn.Parameter] = {}
    for inner in module.modules():
        for name, parameter in inner.named_parameters(recurse=False):
            if parameter.is_meta:
                if id(parameter) not in made:  # tied ones stay tied
                    empty = torch.empty_like(parameter, device="cpu")
                    made[id(parameter)] = nn.Parameter(empty, requires_grad=parameter.requires_grad)
                setattr(inner, name, made[id(parameter)])
        for name, buffer in inner.named_buffers(recurse=False):
            if buffer.is_meta:
                setattr(inner, name, torch.empty_like(buffer, device="cpu"))


@contextmanager
def optimizers_following(optimizers: Sequence[Optimizer], models: Sequence[nn.Module]) -> Iterator[None]:
    """Points the optimizers to the new parameters after the block has replaced those of the models.

    Raises:
        ConfigurationError: An optimizer already has state, which belongs to the old parameters.
    """
    for optimizer in optimizers:
        if optimizer.state:
            raise ConfigurationError(
                "the parameters of an optimizer that has already made a step can't be sharded: prepare it first, "
                "then restore its state with load_state or load_state_dict"
            )
    before = [_named(model) for model in models]
    yield
    replaced: dict[int, nn.Parameter] = {}
    for names, model in zip(before, models, strict=True):
        after = _named(model)
        replaced |= {id(old): after[name] for name, old in names.items()}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["params"] = [replaced.get(id(parameter), parameter) for parameter in group["params"]]


def _named(model: nn.Module) -> Mapping[str, nn.Parameter]:
    """The parameters by name; a shared parameter under each of its names."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import _CHECKPOINT_PREFIX

    found = model.named_parameters(remove_duplicate=False)
    return {name.replace(_CHECKPOINT_PREFIX, ""): parameter for name, parameter in found}
