"""Checks in `prepare` for errors that would show only later: weights that are not trained, or ranks that diverge."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from notebook_accel.errors import ConfigurationError

PREPARABLE = (nn.Module, Optimizer, DataLoader, LRScheduler)
_TO_USER = 4
"""The `stacklevel` of the line that calls `prepare`, which calls `refuse_unrelated`, which calls the check."""


def refuse_containers(given: Sequence[Any]) -> None:
    """Raises for a list or dict that contains objects to prepare, since only the arguments themselves are prepared."""
    for each in given:
        inside = each.values() if isinstance(each, Mapping) else each if isinstance(each, (list, tuple)) else ()
        found = next((item for item in inside if isinstance(item, PREPARABLE)), None)
        if found is not None and not isinstance(each, PREPARABLE):
            raise ConfigurationError(
                f"prepare was given a {type(each).__name__} that holds a {type(found).__name__}, which would stay "
                "unprepared: pass its elements one by one, as in prepare(*models)"
            )


def is_spread_over_devices(model: nn.Module) -> bool:
    """Whether the model, or a part of it, was loaded with a `device_map` of several entries."""
    return any(len(getattr(module, "hf_device_map", None) or ()) > 1 for module in model.modules())


def refuse_device_map(model: nn.Module) -> None:
    """Raises for a model that was loaded with `device_map='auto'`, of which each rank would hold parts elsewhere."""
    if is_spread_over_devices(model):
        raise ConfigurationError(
            f"the {type(model).__name__} was loaded with a device_map of several entries, such as 'auto', but each of "
            "several ranks trains a whole model on its own device: load it without device_map, or with "
            'device_map={"": accelerator.device}, or launch a single rank'
        )


def refuse_unrelated_optimizers(
    models: Iterable[nn.Module], optimizers: Iterable[Optimizer], *, several_ranks: bool
) -> None:
    """Raises for optimizers that don't train the models; on one rank, which can't drift apart from others, warns.

    Args:
        models: All models that are prepared, or are about to be.
        optimizers: The optimizers to check.
        several_ranks: Whether there are several ranks, so that gradients of unprepared models would not be averaged.

    Raises:
        ConfigurationError: On several ranks, an optimizer has parameters that the models don't have.
    """
    known = {id(parameter) for model in models for parameter in model.parameters()}
    if not known:  # only optimizers are prepared here
        return
    for optimizer in optimizers:
        own = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        foreign = [parameter for parameter in own if id(parameter) not in known]
        kind = type(getattr(optimizer, "optimizer", optimizer)).__name__
        if len(foreign) == len(own):
            unrelated = (
                f"none of the parameters of the {kind} belongs to a prepared model, so it would train none of them. It "
                "was created from another model (a copy, or the model from before a cell was run again), or before "
                "its model was sharded: create it from the model, and prepare both in one call."
            )
            if several_ranks:
                raise ConfigurationError(unrelated)
            warnings.warn(unrelated, stacklevel=_TO_USER)
        drifting = [str(tuple(parameter.shape)) for parameter in foreign if parameter.requires_grad]
        if drifting and several_ranks:
            shapes = ", ".join(drifting[:4]) + (", ..." if len(drifting) > 4 else "")
            raise ConfigurationError(
                f"of the {len(own)} parameters of the {kind}, {len(drifting)} (of shape {shapes}) don't belong to any "
                "prepared model: their gradients would stay on their rank, and the ranks would drift apart. Prepare "
                "the modules that they belong to in the same call, or before."
            )


def live_objects(*kinds: type) -> list[Any]:
    """All objects of these classes in the process. Uses `type()`, since `isinstance` may run code of any object.

    Not a generator, which would keep the objects that it goes through alive: it is one of them.
    """
    return [each for each in gc.get_objects() if issubclass(type(each), kinds)]
