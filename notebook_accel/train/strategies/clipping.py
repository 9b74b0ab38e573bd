"""Limits gradients, whether they are whole or sharded, on one mesh or on several.

torch's functions take gradients of one mesh. But a model may have some on a mesh and others on another or on none,
such as those of layers outside the plan of tensor parallelism, and of modules that FSDP2 ignores. So each mesh has its
own call here, and its part of the norm.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from notebook_accel.train.ranks.collectives import gather_over
from notebook_accel.train.ranks.mesh import Ranks
from notebook_accel.train.tensors.shards import full_tensor, is_dtensor


def clip_norm(parameters: Iterable[torch.Tensor], max_norm: float, norm_type: float, unaveraged: Ranks) -> torch.Tensor:
    """Scales all gradients by one factor, so that their norm is at most `max_norm`; returns the norm before.

    Args:
        parameters: The parameters that have the gradients.
        max_norm: The greatest norm.
        norm_type: The p of the p-norm.
        unaveraged: The ranks whose gradients of whole parameters may differ, because nothing averages them. If they
            do, each rank's are a part of the norm, as those of different parameters: all ranks scale by one factor.
    """
    given = list(parameters)
    by_mesh = _by_mesh(given)
    own = [each for each in given if each.requires_grad and not is_dtensor(each)] if unaveraged.size > 1 else []
    shared = [_gradients(held) for mesh, held in by_mesh.items() if mesh is not None or not own]
    norms = [full_tensor(nn.utils.get_total_norm(gradients, norm_type)) for gradients in shared]
    if own:  # on all ranks, even where one of them has no gradients
        norms.append(_norm_over_ranks(own, norm_type, unaveraged))
    total, *others = norms or [torch.tensor(0.0)]
    if others:
        total = torch.linalg.vector_norm(torch.stack([total, *(each.to(total.device) for each in others)]), norm_type)
    for held in by_mesh.values():
        nn.utils.clip_grads_with_norm_(held, max_norm, total)
    return total


def clip_value(parameters: Iterable[torch.Tensor], limit: float) -> None:
    """Limits each element of the gradients to ±`limit`."""
    for held in _by_mesh(parameters).values():
        nn.utils.clip_grad_value_(held, limit)


def _by_mesh(parameters: Iterable[torch.Tensor]) -> dict[Any, list[torch.Tensor]]:
    """The parameters that have gradients, by the mesh of the gradient; `None` for those that are whole."""
    found: dict[Any, list[torch.Tensor]] = {}
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is not None:
            mesh = gradient.device_mesh if is_dtensor(gradient) else None  # type: ignore[attr-defined]
            found.setdefault(mesh, []).append(parameter)
    return found


def _gradients(parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def _norm_over_ranks(parameters: Sequence[torch.Tensor], norm_type: float, ranks: Ranks) -> torch.Tensor:
    """The norm of the gradients of several ranks; that of one, if the user's code has made them equal."""
    gradients = _gradients(parameters)
    zero = parameters[0].new_zeros(())
    total = nn.utils.get_total_norm(gradients, norm_type).to(zero)
    marks = torch.stack([total, sum((each.sum().to(zero) for each in gradients), start=zero)])
    every = gather_over(marks[None], ranks)
    found: torch.Tensor = every[0, 0]
    return found if bool((every == every[0]).all()) else torch.linalg.vector_norm(every[:, 0], norm_type)
