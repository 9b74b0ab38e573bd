"""Examines an exception that says that memory has run out: finds what holds it."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

from notebook_accel import events
from notebook_accel.events import LiveArray, MemorySnapshot, OutOfMemory
from notebook_accel.launch.rank.out_of_memory import cuda_snapshot, live_arrays

_TEXTS = ("can't allocate memory", "out of memory", "std::bad_alloc")
"""How torch, its backends, and C++ say so in a `RuntimeError`."""
_DEVICES = ("cuda", "hip", "mps", "xpu")


def device_of(error: BaseException, text: str) -> str:
    """The kind of device whose memory has run out: `cpu`, `cuda`, ...; empty if the exception says nothing of it.

    Args:
        error: The exception.
        text: Its text.
    """
    kind, text = type(error), text.lower()
    if issubclass(kind, MemoryError):
        return "cpu"
    named = next((device for device in _DEVICES if device in text), "")
    if kind.__name__ == "OutOfMemoryError":
        return (named or "cuda").replace("hip", "cuda")
    if issubclass(kind, RuntimeError) and any(each in text for each in _TEXTS):
        return named.replace("hip", "cuda") or "cpu"
    return ""


def examine(error: BaseException, text: str) -> OutOfMemory | None:
    """What held the memory; `None` if the exception says nothing of it. Emits a snapshot of a CUDA device's memory."""
    device = device_of(error, text)
    if not device:
        return None
    lines: list[LiveArray] = []
    note = ""
    torch = sys.modules.get("torch")
    # Otherwise, the memory is another library's, or torch is built without CUDA: there is nothing to take.
    if device == "cuda" and torch is not None and torch.cuda.is_initialized():
        try:
            lines, data, note = cuda_snapshot.take(torch)
            if data:
                events.emit(MemorySnapshot([data]))
        except Exception as problem:  # a private function of torch's, and hardly any memory
            note = f"There is no snapshot of the memory: {type(problem).__name__}: {problem}"
    return OutOfMemory(device, lines or _named(error, device), note)


def _named(error: BaseException, device: str) -> list[LiveArray]:
    try:
        found = live_arrays.largest(_frames(error), nameless=True)
    except Exception:  # the search needs memory itself
        return []
    return [array for array in found if array.device.partition(":")[0] == device]


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """The frames that the exception came through, innermost first."""
    trace: Any = vars(BaseException)["__traceback__"].__get__(error)
    yield from reversed(list(traceback.walk_tb(trace)))
