"""Copies to a GPU that overlap with its work."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from notebook_accel.train.data import device_transfer
from notebook_accel.train.data.prepare import prepare_data_loader

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
CPU, META = torch.device("cpu"), torch.device("meta")


def test_only_what_has_to_move_is_carried() -> None:
    here, there = {"a": torch.ones(1)}, {"a": torch.ones(1, device="meta")}
    assert device_transfer.transfer_for(here, None, True) is None
    assert device_transfer.transfer_for(here, CPU, True) is None
    assert device_transfer.transfer_for(["text"], CPU, False) is None
    assert isinstance(device_transfer.transfer_for(there, CPU, False), device_transfer.DirectTransfer)
    assert isinstance(device_transfer.transfer_for(here, META, True), device_transfer.DirectTransfer)


def batches(count: int, rows: int, *, pin_memory: bool = False) -> DataLoader[Any]:
    data = torch.arange(count * rows, dtype=torch.float32).reshape(count, rows)
    return DataLoader([{"rows": each, "name": "x"} for each in data], batch_size=None, pin_memory=pin_memory)


@pytest.mark.cuda
@needs_cuda
def test_overlapping_copies_bring_what_blocking_ones_bring() -> None:
    device = torch.device("cuda", 0)
    found = []
    for non_blocking in (False, True):
        loader = prepare_data_loader(batches(20, 2**20), device=device, put_on_device=True, non_blocking=non_blocking)
        assert loader.pin_memory is non_blocking
        sums = []
        for batch in loader:
            busy = torch.ones(2048, 2048, device=device)
            for _ in range(10):
                busy = busy @ busy / 2048
            sums.append((batch["rows"].double().sum() + 0 * busy.sum()).item())
        found.append(sums)
    assert found[0] == found[1]


@pytest.mark.cuda
@needs_cuda
def test_copies_overlap_with_the_work() -> None:
    """One epoch of work and copies takes less than the two after each other."""
    device = torch.device("cuda", 0)
    matrix = torch.randn(4096, 4096, device=device)
    data = [torch.ones(2**24) for _ in range(20)]

    def milliseconds(non_blocking: bool, works: int) -> float:
        plain = DataLoader(data, batch_size=None, pin_memory=True, collate_fn=lambda batch: batch)
        loader = prepare_data_loader(plain, device=device, put_on_device=True, non_blocking=non_blocking)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        for batch in loader:
            for _ in range(works):
                matrix @ matrix
            batch.add_(1)
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end)

    data = [tensor.pin_memory() for tensor in data]  # pinning anew would take longer than all else
    milliseconds(True, 1)
    blocking, overlapping = milliseconds(False, 4), milliseconds(True, 4)
    assert overlapping < blocking
