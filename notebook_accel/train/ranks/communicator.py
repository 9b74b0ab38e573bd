"""How ranks exchange tensors and bytes: over `torch.distributed`, or over torch_xla.

Bytes go from every rank to every rank in one collective where they are few. gloo hangs, or crashes the process, if
ranks disagree about the size of a collective. So the first message has a size that all ranks know beforehand: what the
last exchange would have needed, within limits. It contains the length of the data, and the data itself if it fits;
otherwise a second collective follows, whose size all ranks know by then.
"""

from __future__ import annotations

import importlib
import pickle
import struct
import weakref
import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from notebook_accel.train.tensors import packing

# torch 2.13 renames it, and deprecates the old name.
all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

MIN_SIZE = 8192
"""The fewest bytes of a first message: a gloo collective of this size takes hardly longer than one of a byte."""
MAX_SIZE = 2**17
"""The most bytes of a first message: beyond this, copying takes longer than a second collective."""
_sizes: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""The size of the next first message in each group; it follows from the last, so all ranks agree on it."""
_HEADER = struct.Struct("=4q")


class Communicator(ABC):
    """Collectives, which all ranks of the group call together; the group `None` is all ranks."""

    @property
    @abstractmethod
    def compares_shapes(self) -> bool:
        """Whether ranks can compare shapes first, over a channel that doesn't use their devices."""

    @abstractmethod
    def gather(self, tensor: torch.Tensor, group: Any = None) -> torch.Tensor:
        """The tensors of all ranks, of one shape (n, ...), as one of shape (ranks x n, ...)."""

    @abstractmethod
    def reduce(self, tensor: torch.Tensor, maximum: bool, group: Any = None) -> torch.Tensor:
        """The sum of the tensors of all ranks, or the maximum of each element."""

    @abstractmethod
    def broadcast(self, tensor: torch.Tensor, source: int) -> torch.Tensor:
        """The tensor of one rank."""

    @abstractmethod
    def all_gather_bytes(self, data: bytes, group: Any = None) -> list[bytes]:
        """The bytes of each rank."""

    def all_gather_objects(self, value: Any, group: Any = None) -> list[Any]:
        """The picklable value of each rank; works without a channel on the CPU too."""
        return [pickle.loads(data) for data in self.all_gather_bytes(pickle.dumps(value), group)]

    @abstractmethod
    def barrier(self) -> None:
        """Waits for all ranks."""


class TorchBackend(Communicator):
    """`torch.distributed`: tensors travel on their GPUs with nccl, otherwise in the host's memory."""

    def __init__(self, backend: str | None, device: torch.device) -> None:
        self._backend = backend
        self._device = device

    @property
    def compares_shapes(self) -> bool:
        # False only for a group that the user made for GPUs alone: launches add gloo for the CPU.
        return "cpu:" in dist.get_backend_config()

    def gather(self, tensor: torch.Tensor, group: Any = None) -> torch.Tensor:
        sent = self._carried(tensor)
        size = dist.get_world_size(group)
        everything = sent.new_empty((size * sent.shape[0], *sent.shape[1:]))
        all_gather(everything, sent, group=group)
        return everything.to(tensor.device)

    def reduce(self, tensor: torch.Tensor, maximum: bool, group: Any = None) -> torch.Tensor:
        total = self._carried(tensor).clone()
        dist.all_reduce(total, dist.ReduceOp.MAX if maximum else dist.ReduceOp.SUM, group=group)
        return total.to(tensor.device)

    def broadcast(self, tensor: torch.Tensor, source: int) -> torch.Tensor:
        sent = self._carried(tensor)
        dist.broadcast(sent, source)
        return sent

    def all_gather_bytes(self, data: bytes, group: Any = None) -> list[bytes]:
        body = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
        messages = exchange(b"", body, group)
        longest = max(message.body_size for message in messages)
        if all(message.body is not None for message in messages):
            return [bytes(message.body) for message in messages if message.body is not None]
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: len(data)] = body
        raw = bytearray(len(messages) * longest)
        all_gather(torch.frombuffer(raw, dtype=torch.uint8), padded, group=group)
        starts = range(0, len(raw), longest)
        return [bytes(raw[start : start + message.body_size]) for start, message in zip(starts, messages, strict=True)]

    def all_gather_objects(self, value: Any, group: Any = None) -> list[Any]:
        if self.compares_shapes:
            return super().all_gather_objects(value, group)
        found: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(found, value, group=group)
        return found

    def barrier(self) -> None:
        dist.barrier(device_ids=[self._device.index] if self._backend == "nccl" else None)

    def _carried(self, leaf: torch.Tensor) -> torch.Tensor:
        """The leaf where the backend can send it: on its GPU with nccl, otherwise on the CPU."""
        on_gpus = leaf.device.type == "cuda" and self._backend == "nccl"
        return (leaf if on_gpus else leaf.cpu()).contiguous()


def communicator_of(backend: str | None, device: torch.device) -> Communicator:
    """The communicator for a backend; `device` is this rank's."""
    if backend == "xla":
        found: Communicator = importlib.import_module("notebook_accel.train.ranks.xla_group").XlaBackend()
        return found
    return TorchBackend(backend, device)


@dataclass(frozen=True)
class Message:
    """What one rank sent."""

    head: bytes
    """Cut off if it does not fit."""
    mark: tuple[int, int]
    """The checksum and the length of the whole head: equal marks mean equal heads."""
    body_size: int
    """Bytes."""
    body: memoryview | None
    """`None` where it did not fit."""


def exchange(head: bytes, body: torch.Tensor | None, group: Any = None) -> list[Message]:
    """Sends a rank's head, and its body if both fit, to all ranks of the group; returns each rank's message.

    Args:
        head: A description of the body.
        body: A one-dimensional tensor of bytes on the CPU; `None` for data that is exchanged otherwise.
        group: `None` for all ranks.
    """
    members = group or dist.group.WORLD
    room = _sizes.get(members, MIN_SIZE)
    size = 0 if body is None else body.numel()
    start = _body_start(len(head))
    fits = body is not None and start + size <= room
    own = bytearray(room)
    _HEADER.pack_into(own, 0, zlib.crc32(head), len(head), size, fits)
    head_part = head[: room - _HEADER.size]
    own[_HEADER.size : _HEADER.size + len(head_part)] = head_part
    sent = torch.frombuffer(own, dtype=torch.uint8)
    if fits and size:
        assert body is not None
        sent[start : start + size] = body
    ranks = dist.get_world_size(group)
    raw = bytearray(ranks * room)
    all_gather(torch.frombuffer(raw, dtype=torch.uint8), sent, group=group)
    messages = [_read(raw, rank * room, room) for rank in range(ranks)]
    needed = max(_body_start(message.mark[1]) + message.body_size for message in messages)
    _sizes[members] = min(max(MIN_SIZE, 1 << (needed - 1).bit_length()), MAX_SIZE)
    return messages


def _body_start(head: int) -> int:
    return _HEADER.size + packing.aligned(head)


def _read(raw: bytearray, at: int, room: int) -> Message:
    checksum, length, size, fits = _HEADER.unpack_from(raw, at)
    start = at + _body_start(length)
    return Message(
        head=bytes(raw[at + _HEADER.size : min(at + _HEADER.size + length, at + room)]),
        mark=(checksum, length),
        body_size=size,
        body=memoryview(raw)[start : start + size] if fits else None,
    )
