"""Moving batches to the device: at once, on a CUDA stream ahead of the loop, or by torch_xla's threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch

from notebook_accel.train.tensors import pytree


class Transfer(Protocol):
    """Moves batches to a device: `load` starts the copy, and `deliver` returns a batch that is ready to use."""

    def load(self, batch: Any) -> Any: ...

    def deliver(self, batch: Any) -> Any: ...


class DirectTransfer:
    """Moves a batch when it is loaded, on the current stream."""

    def __init__(self, device: torch.device, non_blocking: bool) -> None:
        self._device = device
        self._non_blocking = non_blocking

    def load(self, batch: Any) -> Any:
        return pytree.send_to_device(batch, self._device, self._non_blocking)

    def deliver(self, batch: Any) -> Any:
        return batch


class StreamTransfer:
    """Moves the next batch on a CUDA stream of its own, while the device computes on the current one."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def load(self, batch: Any) -> Any:
        with torch.cuda.stream(self._stream):
            moved = pytree.send_to_device(batch, self._device, non_blocking=True)
            return moved, self._stream.record_event()

    def deliver(self, batch: Any) -> Any:
        moved, arrived = batch
        current = torch.cuda.current_stream(self._device)
        current.wait_event(arrived)
        for tensor in pytree.leaves(moved):  # otherwise, the allocator may reuse the memory before `current` reads it
            if tensor.is_cuda:
                tensor.record_stream(current)
        return moved


def transfer_for(first: Any, device: torch.device | None, non_blocking: bool) -> Transfer | None:
    """The transfer for the batches of one epoch; `None` if they need not be moved.

    Args:
        first: The first batch, as the loader has made it.
        device: The target device; `None`: do not move the batches.
        non_blocking: Whether copies overlap with computation on the device.
    """
    if device is None:
        return None
    if device.type in ("cpu", "xla") and all(tensor.device.type == device.type for tensor in pytree.leaves(first)):
        return None
    if device.type == "cuda" and non_blocking:
        return StreamTransfer(device)
    return DirectTransfer(device, non_blocking)


def prefetched(batches: Iterator[Any], device: torch.device | None) -> Iterator[Any]:
    """Yields the batches; on a TPU, threads send them to the device while it computes."""
    if device is None or device.type != "xla":
        return batches
    from notebook_accel.train.ranks import xla_group

    return xla_group.uploaded(batches, device)


def finish(device: torch.device | None) -> None:
    """Runs the operations on the last batch, which torch_xla has only recorded."""
    if device is not None and device.type == "xla":
        from notebook_accel.train.ranks import xla_group

        xla_group.sync()
