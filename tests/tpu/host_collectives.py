"""Collectives by way of the host, for ranks that are threads of one process on torch_xla's CPU device.

There the native ones cannot work: each thread compiles a module of its own, and they wait for each other for ever. What
is tested with these is everything around them; never a collective of torch_xla itself.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr

_PATIENCE = 60.0
_lock = threading.Lock()
_barrier: threading.Barrier | None = None
_given: dict[int, Any] = {}
_REDUCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    xm.REDUCE_SUM: torch.add,
    xm.REDUCE_MAX: torch.maximum,
}


def install() -> None:
    """Puts them in place of torch_xla's own, in this process."""
    xm.all_reduce, xm.all_gather = all_reduce, all_gather


def all_reduce(reduce_type: str, inputs: Any, scale: float = 1.0, groups: Any = None, pin_layout: bool = True) -> Any:
    tensors = [inputs] if isinstance(inputs, torch.Tensor) else list(inputs)
    everything = _exchange([tensor.detach().cpu() for tensor in tensors])
    results = []
    for index, tensor in enumerate(tensors):
        total = functools.reduce(_REDUCTIONS[reduce_type], [given[index] for given in everything])
        results.append((total * scale if scale != 1.0 else total).to(tensor.device))
    if isinstance(inputs, torch.Tensor):
        return results[0]
    with torch.no_grad():
        for tensor, result in zip(tensors, results, strict=True):
            tensor.copy_(result)
    return inputs


def all_gather(value: torch.Tensor, dim: int = 0, **options: Any) -> torch.Tensor:
    return torch.cat(_exchange(value.detach().cpu()), dim).to(value.device)


def _exchange(value: Any) -> Sequence[Any]:
    """What each rank has given, in the order of the ranks."""
    global _barrier
    torch_xla.sync()
    size = xr.world_size()
    if size == 1:
        return [value]
    with _lock:
        if _barrier is None:
            _barrier = threading.Barrier(size)
    _given[xr.global_ordinal()] = value
    _barrier.wait(_PATIENCE)
    found = [_given[rank] for rank in range(size)]
    _barrier.wait(_PATIENCE)
    return found
