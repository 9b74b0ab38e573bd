"""Plans that say how tensor parallel splits each layer: checked, and translated from those of transformers' models."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel
from torch.nn.utils.parametrize import is_parametrized
from torch.optim import Optimizer

from notebook_accel.errors import ConfigurationError

_STYLES: dict[str, Callable[[], ParallelStyle]] = {
    "colwise": ColwiseParallel,
    "rowwise": RowwiseParallel,
    "colwise_rep": lambda: ColwiseParallel(output_layouts=Replicate()),
    "colwise_gather_output": lambda: ColwiseParallel(output_layouts=Replicate()),
    "rowwise_rep": lambda: RowwiseParallel(input_layouts=Replicate()),
    "rowwise_split_input": lambda: RowwiseParallel(input_layouts=Replicate()),
}
"""The names in the plans of transformers."""


def of(model: nn.Module, given: Mapping[str, Any] | None) -> dict[str, ParallelStyle]:
    """The plan for `parallelize_module`.

    Args:
        model: The model.
        given: The user's plan; `None`: the model's `_tp_plan`, which may name layers that it does not have.

    Raises:
        ConfigurationError: There is no plan, or it does not fit the model.
    """
    own = getattr(model, "_tp_plan", None) or {}
    chosen = {
        pattern: style for pattern, style in (given or own).items() if _check(model, pattern, required=bool(given))
    }
    if not chosen:
        raise ConfigurationError(
            f"tensor parallelism needs a plan, and {type(model).__name__} has none (_tp_plan): pass "
            "tp_handler=TorchTensorParallelConfig(plan={'layers.*.up': 'colwise', 'layers.*.down': 'rowwise'}), with "
            "the names of the model's submodules"
        )
    return {pattern: _style(pattern, style) for pattern, style in chosen.items()}


def _check(model: nn.Module, pattern: str, *, required: bool) -> bool:
    """Whether the model has a submodule that a plan names.

    Raises:
        ConfigurationError: It has none, but the name is required; or it is one that can't be split.
    """
    modules = dict(model.named_modules())
    names = fnmatch.filter(modules, pattern)
    if required and not names:
        raise ConfigurationError(
            f"the tensor parallel plan names {pattern!r}, but the model has no such submodule; it has "
            f"{', '.join(name for name in modules if name)}"
        )
    normed = next((name for name in names if is_parametrized(modules[name])), None)
    if normed is not None:
        raise ConfigurationError(
            f"the tensor parallel plan names {normed!r}, whose weights are computed from others "
            "(torch.nn.utils.parametrizations, such as weight_norm), and can't be split: leave it out of the plan, or "
            "call torch.nn.utils.parametrize.remove_parametrizations before prepare"
        )
    return bool(names)


def _style(pattern: str, style: ParallelStyle | str) -> ParallelStyle:
    if isinstance(style, ParallelStyle):
        return style
    make = _STYLES.get(style)
    if make is None:
        raise ConfigurationError(
            f"the tensor parallel plan has {style!r} for {pattern}, which is none of {', '.join(_STYLES)}: pass a "
            "ParallelStyle of torch, in tp_handler=TorchTensorParallelConfig(plan=...)"
        )
    return make()


def allow_different_meshes(optimizers: Sequence[Optimizer]) -> None:
    """Makes optimizers update one parameter at a time where a group has layers of the plan and others.

    torch's foreach kernels cannot mix tensors of different meshes, or of none.
    """
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        if len({getattr(parameter, "device_mesh", None) for parameter in group["params"]}) > 1:
            group["foreach"] = False
