"""Shares each sequence among the ranks of a mesh: every rank has a part, and attends to the keys and values of all.

On GPUs it is torch's own ring attention. torch has none for CPUs, where the ranks gather all keys and values instead:
this takes more memory, but gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.overrides import TorchFunctionMode

from notebook_accel.errors import ConfigurationError

_SEQUENCE = 2
"""The dimension of queries, keys and values that is the sequence's."""


def sharing(
    mesh: DeviceMesh,
    exchange: str,
    buffers: Sequence[torch.Tensor],
    dims: Sequence[int],
    no_restore: Set[torch.Tensor],
) -> AbstractContextManager[None]:
    """Within the block, the buffers hold this rank's part of the sequences, and attention spans all parts.

    Args:
        mesh: The ranks, in a mesh of one dimension.
        exchange: How GPUs exchange keys and values: `allgather` or `alltoall`.
        buffers: Tensors with a dimension for the sequence, which are changed in place.
        dims: That dimension of each.
        no_restore: Those that need not hold the whole sequences again after the block.

    Raises:
        ConfigurationError: The sequences cannot be cut into parts.
    """
    parts = mesh.size() * (2 if mesh.device_type == "cuda" else 1)  # the ring gives each GPU an early and a late part
    if len(buffers) != len(dims):
        raise ConfigurationError(
            f"{len(buffers)} buffers and {len(dims)} buffer_seq_dims were given: give the same number of each"
        )
    if any(buffer.shape[dim] % parts for buffer, dim in zip(buffers, dims, strict=True)):
        shapes = ", ".join(str(tuple(buffer.shape)) for buffer in buffers)
        raise ConfigurationError(
            f"buffers of shapes {shapes} cannot be cut along dimensions {list(dims)} into {parts} equal parts: pad the "
            f"sequences to a multiple of {parts}"
        )
    if mesh.device_type != "cuda":
        return _gathering(mesh, buffers, dims, no_restore)
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.experimental._attention import set_rotate_method

    set_rotate_method(exchange)
    found: AbstractContextManager[None] = context_parallel(
        mesh, buffers=list(buffers), buffer_seq_dims=list(dims), no_restore_buffers=set(no_restore)
    )
    return found


@contextmanager
def _gathering(
    mesh: DeviceMesh, buffers: Sequence[torch.Tensor], dims: Sequence[int], no_restore: Set[torch.Tensor]
) -> Iterator[None]:
    before = [None if buffer in no_restore else buffer.clone() for buffer in buffers]
    with torch.no_grad():
        for buffer, dim in zip(buffers, dims, strict=True):
            own = buffer.chunk(mesh.size(), dim)[mesh.get_local_rank()].clone()
            buffer.resize_(own.shape).copy_(own)
    try:
        with _Attention(mesh):
            yield
    finally:
        with torch.no_grad():
            for buffer, whole in zip(buffers, before, strict=True):
                if whole is not None:
                    buffer.resize_(whole.shape).copy_(whole)


class _Attention(TorchFunctionMode):
    """Makes `scaled_dot_product_attention` attend to the keys and values of all ranks."""

    def __init__(self, mesh: DeviceMesh) -> None:
        super().__init__()
        self._mesh = mesh

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not F.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        return self._attend(*args, **(kwargs or {}))

    def _attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **options: Any,
    ) -> torch.Tensor:
        if attn_mask is not None:
            raise ConfigurationError(
                "context parallelism cannot cut an attention mask: call attention with is_causal=True, or without one"
            )
        own, start = query.shape[_SEQUENCE], query.shape[_SEQUENCE] * self._mesh.get_local_rank()
        key, value = self._gathered(key), self._gathered(value)
        if is_causal:
            positions = torch.arange(key.shape[_SEQUENCE], device=query.device)
            attn_mask = positions <= positions[start : start + own, None]
        return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, **options)

    def _gathered(self, tensor: torch.Tensor) -> torch.Tensor:
        """The parts of all ranks, whose gradients are added up in the backward pass."""
        shards = DTensor.from_local(tensor, self._mesh, [Shard(_SEQUENCE)], run_check=False)
        return shards.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])
