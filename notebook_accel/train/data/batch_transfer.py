"""Sends each rank its part of a round of batches from rank 0.

    rank 0:  header to all ─▶ descriptions ─▶ tensors ─▶ its own part
    others:  header ────────▶ description ──▶ tensors ─▶ a batch

A description is the pickled batch without its tensors. It is sent only when it differs from the last one, so a round
of equal shapes takes two collectives.
"""

from __future__ import annotations

import enum
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from notebook_accel.train.ranks.mesh import SampleSharing
from notebook_accel.train.ranks.seeds import message_device
from notebook_accel.train.ranks.state import PartialState
from notebook_accel.train.tensors import packing, pytree
from notebook_accel.train.tensors.pytree import TensorInformation


class RoundKind(enum.IntEnum):
    """The first number in the header of a round."""

    ROUND = 0
    LAST = 1  # the last round, of which some ranks may get no part
    END = 2
    FAILED = 3  # rank 0 could not read


@dataclass(frozen=True)
class Round:
    """One batch for each rank."""

    parts: list[Any]
    """Shorter than the number of ranks if there are not enough samples for all."""
    remainder: int = 0
    """The number of rows that are not repetitions; 0 if the round has no repetitions."""
    is_last: bool = False


def send(rounds: Iterator[Round], set_remainder: Callable[[int], None], sharing: SampleSharing) -> Iterator[Any]:
    """Sends each rank the part of each round that is its share; yields the part of rank 0."""
    if not PartialState().use_distributed:  # a single rank keeps them
        for found in rounds:
            set_remainder(found.remainder)
            yield found.parts[0]
        return
    shares = sharing.shares
    last_descriptions: list[bytes] = []
    while True:
        try:
            upcoming = next(rounds, None)
            if upcoming is None:
                _broadcast_header(RoundKind.END)
                return
            found, parts = upcoming, upcoming.parts
            descriptions = [
                pickle.dumps(pytree.recursively_apply(_describe, part, test_type=is_sent_as_bytes)) for part in parts
            ]
        except Exception:
            _broadcast_header(RoundKind.FAILED)
            raise
        leaves = [pytree.leaves(part, is_sent_as_bytes) for part in parts]
        sizes = [packing.packed_size(each) for each in leaves]
        has_changed = descriptions != last_descriptions
        kind = RoundKind.LAST if found.is_last else RoundKind.ROUND
        described = max(map(len, descriptions)) if has_changed else 0
        _broadcast_header(kind, found.remainder, len(parts), described, max(sizes))
        if has_changed:
            last_descriptions = descriptions
            _scatter([_bytes(each, described) for each in last_descriptions], described, message_device(), shares)
        if max(sizes):
            _scatter([packing.pack(each, max(sizes)) for each in leaves], max(sizes), _tensor_device(), shares)
        set_remainder(found.remainder)
        yield parts[0]
        if found.is_last:
            return


def receive(set_remainder: Callable[[int], None], sharing: SampleSharing) -> Iterator[Any]:
    """Yields this rank's part of each round."""
    description = b""
    while True:
        kind, remainder, parts, described, size = _broadcast_header()
        if kind == RoundKind.FAILED:
            raise RuntimeError(
                "rank 0, which reads for all ranks, could not read the next batch: see the error of rank 0"
            )
        if kind == RoundKind.END:
            return
        if described:
            description = bytes(_scatter(None, described, message_device()).tolist())
        packed = _scatter(None, size, _tensor_device()) if size else None
        set_remainder(remainder)
        if sharing.data.rank < parts:
            yield _unpack(description, packed)
        if kind == RoundKind.LAST:
            return


def _broadcast_header(*numbers: int) -> list[int]:
    """Sends five numbers from rank 0 to all ranks; only rank 0 passes them."""
    header = torch.tensor([*numbers, *[0] * (5 - len(numbers))], device=message_device())
    dist.broadcast(header, 0)
    return header.tolist()


def _scatter(
    parts: list[torch.Tensor] | None, size: int, device: torch.device, shares: Sequence[int] = ()
) -> torch.Tensor:
    """Sends each rank its bytes from rank 0, which passes the bytes of each share, and the number of each rank's."""
    own = torch.empty(size, dtype=torch.uint8, device=device)
    if parts is not None:
        moved = [part.to(device) for part in parts]
        parts = [moved[share] if share < len(moved) else torch.empty_like(own) for share in shares]
    dist.scatter(own, parts, 0)
    return own


def is_sent_as_bytes(value: Any) -> bool:
    """Whether a leaf is sent as bytes; other leaves are part of the description."""
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_quantized


def _describe(tensor: torch.Tensor) -> TensorInformation:
    return TensorInformation(tensor.shape, tensor.dtype)


def _bytes(content: bytes, size: int) -> torch.Tensor:
    return torch.frombuffer(bytearray(content.ljust(size, b"\0")), dtype=torch.uint8)


def _unpack(description: bytes, packed: torch.Tensor | None) -> Any:
    start = 0

    def take(found: TensorInformation) -> torch.Tensor:
        nonlocal start
        if packed is None or not found.shape.numel():
            return torch.empty(found.shape, dtype=found.dtype, device=_tensor_device())
        begin, start = start, start + packing.aligned(found.shape.numel() * found.dtype.itemsize)
        return packing.unpack(packed, begin, found.shape, found.dtype)

    return pytree.recursively_apply(take, pickle.loads(description), test_type=pytree.is_tensor_information)


def _tensor_device() -> torch.device:
    """The device for sending tensors: the GPU with nccl, otherwise the CPU."""
    state = PartialState()
    return state.device if state.backend == "nccl" else message_device()
