"""The parts of a checkpoint: states that are collected on the thread of the training, and can be written on another."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from notebook_accel.train.tensors.shards import is_dtensor


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


def copied(parts: Iterable[Part]) -> list[Part]:
    """The parts with copies of their states in the host's memory, which the training no longer changes."""
    copier = _Copier()
    return [replace(part, state=copier.copy(part.state)) for part in parts]


class _Copier:
    """Copies states. Tensors that share their memory, as tied weights do, share it in the copy too."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], torch.Tensor] = {}

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
            return _on_host(tensor)
        memory = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if memory not in self._known:
            self._known[memory] = _on_host(tensor)
        return self._known[memory]


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone() if tensor.device.type == "cpu" else tensor.cpu()
