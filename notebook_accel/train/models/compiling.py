"""The wrapper of `torch.compile`: removed before a model is prepared, and applied again last."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.options.plugins import TorchDynamoPlugin


def inner(model: nn.Module) -> nn.Module:
    """The model in the wrapper of `torch.compile`, or the model itself."""
    return model._modules.get("_orig_mod", model) if is_compiled(model) else model  # type: ignore[return-value]


def is_compiled(model: Any) -> bool:
    """Whether `torch.compile` has wrapped it. The class is not imported, since that would import the compiler."""
    return type(model).__name__ == "OptimizedModule" and "_orig_mod" in getattr(model, "_modules", ())


def like(model: nn.Module, compiled: nn.Module) -> nn.Module:
    """Compiles a model in the same way as another; does nothing if the other is not compiled."""
    return type(compiled)(model, compiled.dynamo_ctx) if is_compiled(compiled) else model


def apply(model: nn.Module, plugin: TorchDynamoPlugin) -> nn.Module:
    """Compiles a model if the user has requested it, and has not done so already.

    Raises:
        ConfigurationError: The backend is not available.
    """
    if not plugin.chosen or is_compiled(model):
        return model
    from torch._dynamo import list_backends  # here, since it imports the whole compiler

    known = list_backends(exclude_tags=())
    if plugin.to_kwargs()["backend"] not in known:
        raise ConfigurationError(f"dynamo_backend={plugin.backend!s} is not available: choose from {', '.join(known)}")
    return torch.compile(model, **plugin.to_kwargs())  # type: ignore[return-value]
