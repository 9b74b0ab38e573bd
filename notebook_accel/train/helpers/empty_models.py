"""Makes models whose parameters take no memory, or are made on a device at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as registration


@contextmanager
def init_empty_weights(include_buffers: bool | None = None) -> Iterator[None]:
    """Makes the models that are built within the block keep their parameters on the meta device, without values.

        with init_empty_weights():
            model = Transformer(config)  # of any size

    `FullyShardedDataParallelPlugin`, `model.to_empty(device=...)` or `model.load_state_dict(state, assign=True)` give
    them memory.

    Args:
        include_buffers: Whether buffers are also on the meta device; by default they keep their values.
    """
    with init_on_device(torch.device("meta"), include_buffers):
        yield


@contextmanager
def init_on_device(device: torch.device | str | int, include_buffers: bool | None = None) -> Iterator[None]:
    """Makes the models that are built within the block register their parameters on a device.

    Args:
        device: The device.
        include_buffers: Whether buffers are made there too; by default they stay where the model makes them.
    """
    target = torch.device(device)

    def moved(_: nn.Module, name: str, parameter: Any) -> Any:
        if parameter is None or _is_on(parameter, target):
            return parameter
        # Of the same class and with the same attributes, which quantized parameters need.
        attributes = {**parameter.__dict__}
        attributes.pop("requires_grad", None)
        new = type(parameter)(parameter.to(target), requires_grad=parameter.requires_grad)
        new.__dict__.update(attributes)
        return new

    handle = registration.register_module_parameter_registration_hook(moved)
    with handle, target if include_buffers else nullcontext():
        yield


def _is_on(parameter: torch.Tensor, target: torch.device) -> bool:
    """Whether a parameter is on a device already, and so stays the same object, which another module may share."""
    found = parameter.device
    return found.type == target.type and target.index in (None, found.index)
