"""`torch.compile` for models: its wrapper is removed before a model is prepared, and applied again last.

Repeated blocks can be compiled instead of the whole model. They are compiled in place, without a wrapper, so that
hooks, names of parameters, and the other wrappers stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
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
    if plugin.use_regional_compilation and _has_repeated_blocks(model):
        return compile_regions(model, **plugin.to_kwargs())
    return torch.compile(model, **plugin.to_kwargs())  # type: ignore[return-value]


def as_given(model: nn.Module, given: nn.Module, plugin: TorchDynamoPlugin) -> nn.Module:
    """Compiles a prepared model if the user had compiled the `given` one, or requested it with the plugin."""
    return like(model, given) if is_compiled(given) else apply(model, plugin)


def compile_regions(module: nn.Module, **compile_kwargs: Any) -> nn.Module:
    """Compiles the blocks of each `ModuleList` whose modules have one class, and what surrounds them separately.

    All blocks share what was compiled for the first one, so that a deep model compiles in less time. A model without
    such blocks is compiled as a whole. See torch's recipe
    https://docs.pytorch.org/tutorials/recipes/regional_compilation.html.

    Args:
        module: The model. It is compiled in place; Accelerate's function returns a copy that shares its parameters.
        compile_kwargs: Arguments of `torch.compile`.

    Returns:
        The same model.
    """
    if _is_repeated_blocks(module):
        regions = list(module.children())
    elif _has_repeated_blocks(module):
        for child in module.children():
            compile_regions(child, **compile_kwargs)
        regions = []
    else:
        regions = [module]
    for region in regions:
        _compile_in_place(region, **compile_kwargs)
    return module


def _compile_in_place(module: nn.Module, **compile_kwargs: Any) -> None:
    if type(module).forward.__module__.startswith("torch.") and "forward" not in vars(module):
        module.forward = _Forward(module)
    module.compile(**compile_kwargs)


class _Forward:
    """The forward method of one of torch's own modules. The compiler skips functions of torch that no others call."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return type(self.module).forward(self.module, *args, **kwargs)


def has_compiled_regions(module: nn.Module) -> bool:
    """Whether a module or one in it is compiled, in a wrapper or in place."""
    return any(is_compiled(each) or _compiled_call(each) is not None for each in module.modules())


class CallInPlace:
    """The base of what is called in place of a module, as `Module.compile` arranges it, without being compiled.

    Args:
        module: The module.

    Attributes:
        given: What was called in its place before, if it is compiled.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.given: Callable[..., Any] | None = module._compiled_call_impl


def _compiled_call(module: nn.Module) -> Any:
    """What `Module.compile` has made of a module; `None` if that was not called."""
    call: Any = module._compiled_call_impl
    return call.given if isinstance(call, CallInPlace) else call


def _is_repeated_blocks(module: nn.Module) -> bool:
    if not isinstance(module, nn.ModuleList) or not module:
        return False
    return all(isinstance(block, type(module[0])) for block in module)


def _has_repeated_blocks(module: nn.Module) -> bool:
    return any(map(_is_repeated_blocks, module.modules()))
