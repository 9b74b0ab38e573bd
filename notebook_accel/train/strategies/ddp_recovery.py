"""Repairs the DDP models and optimizers of persistent ranks after an interrupt.

The ranks join a new process group if the old one is unusable. An interrupt arrives between two steps on some ranks, and
within a step on others. The replicas, which DDP keeps equal, may then be one step apart and would diverge, so the other
ranks copy the state of rank 0.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from notebook_accel.train.models.prepare_checks import live_objects
from notebook_accel.train.ranks import process_group
from notebook_accel.train.ranks.step_observers import TrainingPoint


def rejoin_group(generation: int) -> None:
    """Joins the process group of the next generation, and moves all DDP models to it."""
    found = [_detach(model) for model in _distributed_models()]
    process_group.leave()
    process_group.rejoin(generation)
    for model, hooks, state in found:
        _rejoin(model, hooks, state)


def synchronize_replicas() -> str:
    """Makes models and optimizers equal on all ranks; returns a notice for the user, or an empty text."""
    if not dist.is_initialized():
        return ""
    point = TrainingPoint.of_this_rank()
    point.steps = max(_gather(point.steps))
    models = [model.module for model in _distributed_models()]
    replicas = [*models, *_optimizers_and_schedulers()] if models else []
    signatures = _gather([_signature(each) for each in replicas])
    if any(other != signatures[0] for other in signatures):
        return "The ranks now hold different models or optimizers, which can't be made equal: prepare them again."
    if not replicas:
        return ""
    digests = _gather([_digest(each) for each in replicas])
    if all(other == digests[0] for other in digests):
        return ""
    for each in replicas:
        _copy_from_rank_0(each)
    return "The ranks had stopped at different steps: the other ranks' models and optimizers now have rank 0's state."


def _distributed_models() -> list[Any]:
    parallel = sys.modules.get("torch.nn.parallel.distributed")
    if parallel is None:
        return []
    found = live_objects(parallel.DistributedDataParallel)
    # Models on a group that the user created are left to the user.
    return sorted((each for each in found if each.process_group is dist.group.WORLD), key=_signature)


def _detach(model: Any) -> tuple[Any, list[Any], Any]:
    """Drops a model's references to its group, so that it can be replaced; returns what `_rejoin` needs."""
    state = model.__getstate__()
    for name in ("process_group", "reducer", "logger"):
        delattr(model, name)
    return model, list(model._comm_hooks), state


def _rejoin(model: Any, hooks: list[Any], state: Any) -> None:
    """Gives a model a new reducer, as unpickling does: the old one holds the old group, and half a backward pass."""
    model.__setstate__(state)
    for hook, of_hook in hooks:
        dist._register_comm_hook(model.reducer, of_hook, hook)  # type: ignore[attr-defined]


def _optimizers_and_schedulers() -> list[Any]:
    """The optimizers and schedulers of this process."""
    kinds = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)
    return sorted(live_objects(*kinds), key=_signature)


def _signature(each: Any) -> str:
    """A string that is equal for corresponding objects on all ranks: the class, and the shapes of its parameters."""
    if isinstance(each, nn.Module):
        return f"{type(each).__name__} {[tuple(parameter.shape) for parameter in each.parameters()]}"
    if isinstance(each, torch.optim.Optimizer):
        shapes = [[tuple(parameter.shape) for parameter in group["params"]] for group in each.param_groups]
        return f"{type(each).__name__} {shapes}"
    return f"{type(each).__name__} {_signature(each.optimizer)}"


def _digest(each: Any) -> list[Any]:
    """A small digest that differs if the contents differ."""
    digests: list[Any] = []
    todo: list[Any] = [each.state_dict()]
    while todo:
        value = todo.pop()
        if isinstance(value, torch.Tensor):
            plain = value.detach().double()
            digests.append((float(plain.sum()), float(plain.square().sum())))
        elif isinstance(value, dict):
            todo += value.values()
        elif isinstance(value, (list, tuple)):
            todo += value
        elif isinstance(value, (int, float)):
            digests.append(value)
    return digests


def _copy_from_rank_0(each: Any) -> None:
    state = [each.state_dict() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(state, src=0)
    if dist.get_rank():
        each.load_state_dict(state[0])


def _gather(own: Any) -> list[Any]:
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, own)
    return found
