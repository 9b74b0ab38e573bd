"""Tensors as bytes in one buffer: the only place that aligns and packs them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

import torch

ALIGNMENT = 16
"""In bytes: the size of torch's largest element, a complex128."""
_ELEMENTS = 256
"""How many elements of a tensor `checksum` reads: it runs at each step."""


def aligned(size: int) -> int:
    """The next multiple of the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def packed_size(leaves: Iterable[torch.Tensor]) -> int:
    """The bytes that `pack` needs for these tensors."""
    return sum(aligned(leaf.nbytes) for leaf in leaves)


def pack(leaves: Sequence[torch.Tensor], size: int | None = None) -> torch.Tensor:
    """Packs tensors one after the other into a tensor of bytes on their device.

    Args:
        leaves: Strided tensors.
        size: The number of bytes of the result; `None`: as many as the tensors need.
    """
    device = leaves[0].device if leaves else None
    packed = torch.empty(packed_size(leaves) if size is None else size, dtype=torch.uint8, device=device)
    start = 0
    for leaf in leaves:
        flat = leaf.detach().contiguous().view(-1).view(torch.uint8)
        packed[start : start + flat.numel()] = flat
        start += aligned(flat.numel())
    return packed


def unpack(packed: torch.Tensor, start: int, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """The tensor that starts at a byte of `packed`, whose memory it shares."""
    return packed[start : start + shape.numel() * dtype.itemsize].view(dtype).view(shape)


def checksum(leaves: Iterable[torch.Tensor], before: int = 0, most: int | None = _ELEMENTS) -> int:
    """A checksum of the shapes and elements of tensors.

    Args:
        leaves: The tensors.
        before: The checksum of what comes before them.
        most: About how many elements of each tensor are read, only of those in this host's memory; `None`: all.
    """
    found = before
    for leaf in leaves:
        found = zlib.crc32(repr(leaf.shape).encode(), found)
        if most is None:
            elements = leaf.detach().cpu().contiguous().view(-1)
        elif (
            leaf.device.type == "cpu"
            and leaf.layout is torch.strided
            and leaf.is_contiguous()
            and not leaf.is_quantized
        ):
            elements = leaf.detach().view(-1)[:: leaf.numel() // most + 1].contiguous()
        else:
            continue
        found = zlib.crc32(elements.view(torch.uint8).numpy().tobytes(), found)
    return found
