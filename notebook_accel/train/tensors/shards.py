"""Sharded tensors (DTensors), without importing their module, which takes a second."""

from __future__ import annotations

import sys

import torch


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """The full tensor of a DTensor; any other tensor unchanged."""
    full = getattr(tensor, "full_tensor", None)
    return tensor if full is None else full()


def is_dtensor(value: object) -> bool:
    """Whether a value is a DTensor. Code that has made one has imported the module."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)
