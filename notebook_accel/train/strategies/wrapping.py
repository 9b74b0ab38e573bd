"""Chooses the layers that FSDP shards, adds activation checkpointing, and allocates models on the meta device."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, offload_wrapper

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.options.fsdp import FullyShardedDataParallelPlugin

_DEFAULT_MIN_PARAMETERS = 100_000_000
"""The minimum number of parameters for `size_based_wrap` to wrap a module; Accelerate's default."""


def layers(model: nn.Module, plugin: FullyShardedDataParallelPlugin) -> list[nn.Module]:
    """Returns the layers to shard individually, inner ones first, without the model itself.

    Raises:
        ConfigurationError: The model has no layer of a class that the plugin names; or a policy has arguments of
            FSDP1 for some layers.
    """
    inner = [module for module in reversed(list(model.modules())) if module is not model]
    # FSDP gathers parameters in a layer's forward method, which containers of layers do not have.
    inner = [module for module in inner if not isinstance(module, (nn.ModuleList, nn.ModuleDict))]
    kind = plugin.wrapping
    if not isinstance(kind, str):
        return _by_policy(model, inner, kind)
    if kind == "no_wrap":
        return []
    if kind == "size_based_wrap":
        minimum = plugin.min_num_params or _DEFAULT_MIN_PARAMETERS
        return _by_rest(inner, lambda _, rest: rest >= minimum)
    names = plugin.transformer_cls_names_to_wrap or sorted(getattr(model, "_no_split_modules", None) or [])
    found = [module for module in inner if type(module).__name__ in names]
    missing = set(names) - {type(module).__name__ for module in found}
    if missing or not names:
        raise ConfigurationError(
            f"transformer_cls_names_to_wrap={list(names)}: the model has no layer of "
            f"{'class ' + ', '.join(sorted(missing)) if missing else 'these'}. Name the class of its repeated block; "
            f"it has {', '.join(sorted({type(module).__name__ for module in model.modules()}))}"
        )
    return found


def _by_policy(model: nn.Module, inner: Sequence[nn.Module], policy: Any) -> list[nn.Module]:
    """Asks a function of a module, or a policy for FSDP1, as in `torch.distributed.fsdp.wrap`."""
    if hasattr(policy, "_run_policy"):  # ModuleWrapPolicy, CustomPolicy
        arguments = policy._run_policy(model, set(), {})
        if any(arguments.values()):
            raise ConfigurationError(
                "auto_wrap_policy gives layers arguments of FSDP1, which FSDP2 does not have: return True or False"
            )
        return [module for module in inner if module in arguments]
    if "recurse" not in inspect.signature(policy).parameters:
        return [module for module in inner if policy(module)]
    return _by_rest(inner, lambda module, rest: policy(module=module, recurse=False, nonwrapped_numel=rest))


def _by_rest(inner: Sequence[nn.Module], decide: Callable[[nn.Module, int], bool]) -> list[nn.Module]:
    """Asks a function of a module, and of the number of its parameters that are in no layer chosen so far."""
    chosen: list[nn.Module] = []
    taken: set[int] = set()
    for module in inner:
        own = {id(parameter): parameter.numel() for parameter in module.parameters()}
        if decide(module, sum(size for key, size in own.items() if key not in taken)):
            chosen.append(module)
            taken |= own.keys()
    return chosen


def ignored(model: nn.Module, plugin: FullyShardedDataParallelPlugin) -> list[nn.Module]:
    """Returns the modules that stay as they are: those that the plugin lists, or whose names match its pattern.

    Raises:
        ConfigurationError: The pattern matches no name.
    """
    given = plugin.ignored_modules
    if not isinstance(given, str):
        return list(given or ())
    found = [module for name, module in model.named_modules() if re.fullmatch(given, name)]
    if not found:
        names = ", ".join(name for name, _ in model.named_modules() if name)
        raise ConfigurationError(
            f"ignored_modules={given!r} is a regular expression that must match the whole name of a module, but "
            f"matches none of {names}"
        )
    return found


def with_own_parameters(model: nn.Module, chosen: Sequence[nn.Module]) -> list[nn.Module]:
    """Returns the chosen layers that share no parameter with the rest of the model.

    FSDP2 needs all modules that share a parameter, such as tied embeddings, in one group: here, that of the model, or
    of a layer that contains all of them.
    """
    users: dict[int, set[nn.Module]] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            users.setdefault(id(parameter), set()).add(module)
    shared = [modules for modules in users.values() if len(modules) > 1]

    def is_cut(layer: nn.Module) -> bool:
        inside = set(layer.modules())
        return any(modules & inside and modules - inside for modules in shared)

    return [layer for layer in chosen if not is_cut(layer)]


def check_types(groups: Sequence[nn.Module], ignored: Sequence[nn.Module]) -> None:
    """Checks that FSDP2 can shard these modules, inner ones first: the trained parameters of each have one type.

    Raises:
        ConfigurationError: They don't.
    """
    left = {parameter for module in ignored for parameter in module.parameters()}
    for module in groups:
        own = {name: each for name, each in module.named_parameters() if each.requires_grad and each not in left}
        left.update(own.values())
        first_of = {each.dtype: name for name, each in reversed(own.items())}
        if len(first_of) > 1:
            found = " and ".join(f"{dtype} ({name})" for dtype, name in first_of.items())
            raise ConfigurationError(
                f"FSDP2 shards what is trained in this {type(module).__name__} together, and needs one type for it, "
                f"but the parameters have {found}: convert them, such as with model.to(torch.float32) together with "
                "mixed_precision='bf16', or choose an auto_wrap_policy that wraps layers of another type by themselves"
            )


def recompute(model: nn.Module, chosen: Sequence[nn.Module], *, offload: bool) -> list[nn.Module]:
    """Wraps each chosen layer for activation checkpointing, and returns the wrappers.

    Args:
        model: The model, whose layers are replaced.
        chosen: The layers to wrap.
        offload: Whether the inputs of the layers, which remain stored, are kept in the host's memory.

    Raises:
        ConfigurationError: No layer was chosen.
    """
    if not chosen:
        raise ConfigurationError(
            "activation_checkpointing applies to wrapped layers, but auto_wrap_policy chooses none: pass "
            "auto_wrap_policy='transformer_based_wrap' and transformer_cls_names_to_wrap"
        )
    wanted = {id(module): module for module in chosen}
    wrappers: dict[int, nn.Module] = {}
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if id(child) in wanted:
                if id(child) not in wrappers:
                    wrapper = checkpoint_wrapper(child)
                    wrappers[id(child)] = offload_wrapper(wrapper) if offload else wrapper
                setattr(parent, name, wrappers[id(child)])
    return [wrappers[key] for key in wanted]


def materialise(model: nn.Module, device: torch.device, fill: Callable[[nn.Module], None] | None) -> None:
    """Allocates and initializes the parameters of a model that was made on the meta device.

    Raises:
        ConfigurationError: A layer has no `reset_parameters`, and no `fill` is given.
    """
    model.to_empty(device=device)
    for module in model.modules():
        own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        if not own:
            continue
        reset = fill or getattr(type(module), "reset_parameters", None)
        if reset is None:
            raise ConfigurationError(
                f"a {type(module).__name__} was made on the meta device and has no reset_parameters method: pass "
                "param_init_fn to the plugin"
            )
        reset(module)
