"""Sharded tensors (DTensors)."""

from __future__ import annotations

import torch


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The full tensor of a DTensor; any other tensor unchanged."""
    full = getattr(tensor, "full_tensor", None)
    return tensor if full is None else full()
