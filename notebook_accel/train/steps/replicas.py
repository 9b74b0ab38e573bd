"""Compares what the ranks that train one model have in common: gradients, options of the optimizer, and weights.

A loop can make them different without a sign of it. Nothing averages the gradients that `torch.autograd.grad` returns,
and a scheduler that is given this rank's metric sets this rank's learning rate.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from notebook_accel.train.ranks.step_observers import TrainingPoint
from notebook_accel.train.ranks.store_comparison import StoreComparison
from notebook_accel.train.steps.checks import level_of_user
from notebook_accel.train.strategies.base import Strategy

_MOST = 64
"""How many norms are compared. If there are more parameters, each is that of several."""
_TOLERANCE = 1e-6
"""How much norms may differ, as kinds of devices may round sums differently; on one kind, they are equal."""
_CAUSES = {
    "gradients": "accelerator.backward(loss) averages those of all parameters that were there, and not frozen, in "
    "prepare; loss.backward() does so only once after each call of the prepared model. What torch.autograd.grad or "
    "torch.func.grad returns isn't averaged: pass it to accelerator.reduce(gradient, 'mean')",
    "options": "Prepare the scheduler, which averages a metric over the ranks, or compute the value from one that is "
    "the same on all ranks, such as accelerator.reduce(loss, 'mean')",
    "weights": "Something has changed them on some ranks only, or with random numbers that differ between ranks, or an "
    "earlier step had gradients that weren't averaged",
}


class StepCheck:
    """Checks the steps of one optimizer on several ranks: what has to be averaged first, and what has to be equal.

    Whether all is equal is checked before steps 1, 2, 4, 8, …, so that it costs nothing.

    Args:
        strategy: What distributes the models.
        models: The prepared models, perhaps in compile wrappers. The list may still grow.
    """

    def __init__(self, strategy: Strategy, models: Sequence[nn.Module]) -> None:
        self._strategy = strategy
        self._models = models
        self._ranks: StoreComparison | None = StoreComparison("replicas")
        self._steps = 0

    def __call__(self, optimizer: Optimizer) -> None:
        """Checks what the optimizer is about to use; warns, on one rank, if the ranks differ.

        Raises:
            ConfigurationError: Some gradients still wait to be averaged.
        """
        self._strategy.refuse_unaveraged(self._models, optimizer)
        self._steps += 1
        if self._steps & (self._steps - 1) or self._ranks is None:
            return
        replicated = self._strategy.replicated(self._models)
        if replicated is None:
            return
        held = {id(each) for group in optimizer.param_groups for each in group["params"]}
        own = {name: each for name, each in replicated.items() if id(each) in held}
        every = self._ranks.exchange(_describe(own, optimizer), TrainingPoint.of_this_rank().steps)
        for kind, causes in _CAUSES.items():
            found = _difference([each[kind] for each in every])
            if found:
                self._ranks = None
                warnings.warn(
                    f"before step {self._steps}, the ranks have different {kind}: {found}. So they no longer "
                    f"train one model. {causes}",
                    stacklevel=level_of_user(),
                )
                return


@torch.no_grad()
def _describe(parameters: Mapping[str, torch.Tensor], optimizer: Optimizer) -> dict[str, dict[str, float]]:
    """What has to be equal on all ranks, by kind and name: norms, and numbers."""
    options = {
        name if len(optimizer.param_groups) == 1 else f"{name} of group {index}": value
        for index, group in enumerate(optimizer.param_groups)
        for name, value in group.items()
    }
    return {
        "gradients": _norms({name: each.grad for name, each in parameters.items()}),
        "options": {name: float(value) for name, value in options.items() if _is_number(value)},
        "weights": _norms(parameters),
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, torch.Tensor) and value.numel() == 1)


def _norms(tensors: Mapping[str, torch.Tensor | None]) -> dict[str, float]:
    """The norms of at most `_MOST` groups of tensors that follow each other, by the name of the first in each."""
    if not tensors:
        return {}
    device = next((each.device for each in tensors.values() if each is not None), torch.device("cpu"))
    found = [torch.zeros((), device=device) if each is None else _norm(each).to(device) for each in tensors.values()]
    norms = torch.stack([each.float() if device.type == "mps" else each.double() for each in found]).tolist()
    size = math.ceil(len(norms) / _MOST)
    return {
        name: math.hypot(*norms[start : start + size])
        for start, name in zip(range(0, len(norms), size), list(tensors)[::size], strict=True)
    }


def _norm(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_sparse:
        tensor = tensor.coalesce().values()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    norm: torch.Tensor = torch.linalg.vector_norm(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32))
    return norm


def _difference(by_rank: Sequence[Mapping[str, float]]) -> str:
    """The first name whose values differ, with those of two ranks, in words; empty if there is none."""
    names = dict.fromkeys(chain.from_iterable(by_rank))
    for name in names:
        values = [each.get(name, 0.0) for each in by_rank]
        for rank, value in enumerate(values):
            both_nan = math.isnan(value) and math.isnan(values[0])
            if not both_nan and not math.isclose(value, values[0], rel_tol=_TOLERANCE):
                return f"{name} is {values[0]:.6g} on rank 0, and {value:.6g} on rank {rank}"
    return ""
