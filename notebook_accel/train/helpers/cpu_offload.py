"""Accelerate's hook that keeps a model on the CPU between its forward passes, with the device of this rank.

Without a device, Accelerate's own would create the state of an `Accelerator` of its own.
"""

from __future__ import annotations

from typing import Any

import torch
from accelerate import big_modeling, hooks
from torch import nn

from notebook_accel.train.ranks.state import PartialState


class CpuOffload(hooks.CpuOffload):  # type: ignore[misc]
    """Moves a model to the device for each forward pass, and another model back to the CPU before it.

    Args:
        execution_device: The device; `None`: that of this rank.
        prev_module_hook: The hook of the model to move back to the CPU.
    """

    def __init__(
        self,
        execution_device: str | int | torch.device | None = None,
        prev_module_hook: hooks.UserCpuOffloadHook | None = None,
    ) -> None:
        super().__init__(_device(execution_device), prev_module_hook)


def cpu_offload_with_hook(
    model: nn.Module,
    execution_device: str | int | torch.device | None = None,
    prev_module_hook: hooks.UserCpuOffloadHook | None = None,
) -> tuple[nn.Module, Any]:
    """Keeps a model on the CPU until its forward pass, and then on the device until its hook's `offload()`.

    Args:
        model: The model.
        execution_device: The device; `None`: that of this rank.
        prev_module_hook: The hook of the model to move back to the CPU before the forward pass.
    """
    found: tuple[nn.Module, Any] = big_modeling.cpu_offload_with_hook(
        model, _device(execution_device), prev_module_hook
    )
    return found


def _device(given: str | int | torch.device | None) -> str | int | torch.device:
    return PartialState().device if given is None else given
