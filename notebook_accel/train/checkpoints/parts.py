"""The parts of a checkpoint: states that are collected on the thread of the training, and can be written on another."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from notebook_accel.train.checkpoints.serialization import refuse_unsafe, write_safe
from notebook_accel.train.tensors.shards import is_dtensor

OPTIMIZER_NAME = "optimizer"
SCALER_NAME = "scaler.pt"
TUNABLES_NAME = "tunables.pkl"
SCHEDULER_NAME = "scheduler"
SAMPLER_NAME = "sampler"
LOADER_NAME = "dl_state_dict"
GRADIENTS_NAME = "gradients"
RNG_STATE_NAME = "random_states"


@dataclass(frozen=True)
class Part:
    """One state, and the function that writes it to a checkpoint's folder."""

    state: Any
    """Tensors in dicts, lists and tuples, and plain values; those of the run itself, which its next step changes."""
    writer: Callable[[Any, Path], None]
    checker: Callable[[Any], None] = lambda _: None

    def check(self) -> None:
        """Raises `ConfigurationError` if the state could not be read back."""
        self.checker(self.state)

    def write(self, folder: Path) -> None:
        self.writer(self.state, folder)


def safe_part(state: Any, name: str, owner: str) -> Part:
    """A state that is written to a file of this name, if it can be read back; `owner` is whose it is, for messages."""
    return Part(
        state, lambda state, folder: write_safe(state, folder / name, owner), lambda state: refuse_unsafe(state, owner)
    )


def file_name(stem: str, index: int, suffix: str = ".bin", rank: int = 0, first: bool = True) -> str:
    """`stem[_index][_rank{rank}]suffix`, without the number for index 0 or, if rank 0 comes first, for rank 0."""
    number = f"_{index}" if index else ""
    return f"{stem}{number}{'' if first and not rank else f'_rank{rank}'}{suffix}"


class HostCopies:
    """Copies states to the host's memory, where the training no longer changes them.

    The memory is used again for the next checkpoint: it takes the system several times as long to provide new memory as
    to copy. A checkpoint must therefore be written before the next one is copied.
    """

    def __init__(self) -> None:
        self._unused: _Buffers = defaultdict(list)

    def of(self, parts: Iterable[Part]) -> list[Part]:
        """The parts with copies of their states."""
        copier = _Copier(self._unused)
        found = [replace(part, state=copier.copy(part.state)) for part in parts]
        self._unused = copier.used
        return found


_Buffers = defaultdict[Hashable, list[torch.Tensor]]
"""Tensors in the host's memory, by what `_layout` says of them."""


class _Copier:
    """Copies states. Tensors that share their memory, as tied weights do, share it in the copy too.

    Args:
        unused: Tensors to copy to, which are taken out.

    Attributes:
        used: The tensors that were copied to.
    """

    def __init__(self, unused: _Buffers) -> None:
        self._unused = unused
        self._known: dict[tuple[Any, ...], torch.Tensor] = {}
        self.used: _Buffers = defaultdict(list)

    def copy(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, Mapping):
            new: Any = copy.copy(value)  # of the same class, and with its attributes
            for key, each in value.items():
                new[key] = self.copy(each)
            return new
        if type(value) in (list, tuple):
            return type(value)(self.copy(each) for each in value)
        return copy.deepcopy(value)

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.detach()
        if is_dtensor(tensor) or not tensor.numel():
            return self._on_host(tensor)
        memory = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if memory not in self._known:
            self._known[memory] = self._on_host(tensor)
        return self._known[memory]

    def _on_host(self, tensor: torch.Tensor) -> torch.Tensor:
        local = _local(tensor)
        if type(local) is not torch.Tensor or local.layout is not torch.strided:
            return _new_on_host(tensor)
        layout = _layout(tensor, local)
        if self._unused[layout]:
            found = self._unused[layout].pop()
            _local(found).copy_(local)
        else:
            found = _new_on_host(tensor)
        self.used[layout].append(found)
        return found


def _local(tensor: Any) -> torch.Tensor:
    """What this rank holds of a tensor."""
    return tensor.to_local() if is_dtensor(tensor) else tensor  # type: ignore[no-any-return]


def _layout(tensor: Any, local: torch.Tensor) -> Hashable:
    spread = (tensor.device_mesh, tensor.placements, tensor.shape) if is_dtensor(tensor) else ()
    return local.dtype, local.shape, local.stride(), local.is_conj(), local.is_neg(), *spread


def _new_on_host(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone() if tensor.device.type == "cpu" else tensor.cpu()
