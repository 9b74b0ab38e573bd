"""The graph of a loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

_MOST_NODES = 100_000
"""The nodes of a graph that are searched for parameters, at most."""


def parameters(loss: torch.Tensor) -> Iterator[nn.Parameter]:
    """The parameters that a loss depends on, as far as its graph shows them."""
    seen: set[Any] = set()
    pending = [loss.grad_fn]
    while pending and len(seen) < _MOST_NODES:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, nn.Parameter):
            yield leaf
        pending += [before for before, _ in node.next_functions]
