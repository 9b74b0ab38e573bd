"""How ranks exchange tensors and bytes: over `torch.distributed`, or over torch_xla."""

from __future__ import annotations

import importlib
import pickle
from abc import ABC, abstractmethod
from typing import Any

import torch
import torch.distributed as dist

from notebook_accel.train.ranks import object_collectives


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
        object_collectives.all_gather(everything, sent, group=group)
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
        return object_collectives.all_gather_bytes(data, group)

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
