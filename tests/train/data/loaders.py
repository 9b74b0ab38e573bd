"""Datasets and loaders of the tests, which ranks too can import."""

from __future__ import annotations

from collections import UserDict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

Pair = namedtuple("Pair", "inputs labels")


@dataclass
class Sample:
    inputs: torch.Tensor
    name: str


class Encoding(UserDict):
    """Like a tokenizer's output: a mapping that moves itself, and has more than its items."""

    def __init__(self, data: dict[str, Any], encodings: str = "") -> None:
        super().__init__(data)
        self.encodings = encodings

    def to(self, device: Any) -> Encoding:
        self.data = {key: value.to(device) for key, value in self.data.items()}
        return self


class Stream(IterableDataset):
    """0, 1, … as tensors; it remembers its epoch."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.epoch = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.arange(self.length))

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


class SizedStream(Stream):
    def __len__(self) -> int:
        return self.length


class DividedStream(SizedStream):
    """Each worker reads a part of it."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = get_worker_info()
        assert worker is not None
        return iter(torch.arange(worker.id, self.length, worker.num_workers))


class ReadyBatches(Dataset):
    """Batches of `size` numbers each."""

    def __init__(self, batches: int, size: int = 3) -> None:
        self.batches = batches
        self.size = size

    def __len__(self) -> int:
        return self.batches

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.arange(index * self.size, (index + 1) * self.size)


def numbers(length: int, batch_size: int | None = 4, **options: Any) -> DataLoader[Any]:
    """A loader of the numbers 0, 1, …"""
    return DataLoader(torch.arange(length), batch_size=batch_size, **options)


def pairs(length: int, batch_size: int = 4, **options: Any) -> DataLoader[Any]:
    """A loader of the numbers 0, 1, … and their squares."""
    inputs = torch.arange(length)
    return DataLoader(TensorDataset(inputs, inputs**2), batch_size=batch_size, **options)


def read(loader: Any) -> list[list[int]]:
    """The numbers of each batch."""
    return [batch.tolist() for batch in loader]
