"""The memory that a rank's process uses, on the host and on its device, and the most that each phase has used."""

from __future__ import annotations

import mmap
import os
import sys
import time
from typing import Any

from notebook_accel.events import Event, Heartbeat, MemoryPeaks, Phase, step_part, training_step
from notebook_accel.launch.rank.out_of_memory import Growth

_STEP = 2**20
"""The smallest difference, in bytes, that is reported."""
_DEVICE_INTERVAL = 1.0
"""Seconds between two readings of the device's memory."""


class Memory:
    """Samples this process's memory, and what torch has reserved for it on the rank's CUDA device.

    Args:
        interval: The least seconds between two samples.
        growth: Looks at what holds the memory if there is much.
    """

    def __init__(self, interval: float, growth: Growth | None = None) -> None:
        self._interval = interval
        self._growth = growth
        self.phase = Phase.STARTING
        self._peaks = _Peaks()
        self._due = 0.0
        self._last = Heartbeat(0)
        self._device: tuple[int | None, int | None] = (None, None)
        self._device_due = 0.0

    def sample(self, now: float) -> list[Event]:
        """Events if a sample is due, and the memory has changed by a MiB since the last event, or the step at all.

        The memory of the device may be a second old, since reading it takes 0.1 ms.
        """
        if now < self._due:
            return []
        self._due = now + self._interval
        if now >= self._device_due:
            self._device_due = now + _DEVICE_INTERVAL
            self._device = _on_device()
        found = Heartbeat(resident(), *self._device, training_step(), time.time())
        events: list[Event] = []
        if has_changed(self._last, found):
            self._last = found
            events.append(found)
        allocated = _allocated() if found.device_used is not None else None
        events += self._peaks.add(step_part() or self.phase.value, found.resident, allocated)
        if self._growth is not None:
            events += self._growth.sample(found.resident)
        return events

    def on_call_end(self) -> None:
        """Another call has its own peaks."""
        self._peaks = _Peaks()


class _Peaks:
    """The most of each phase."""

    def __init__(self) -> None:
        self._resident: dict[str, int] = {}
        self._device: dict[str, int] = {}

    def add(self, phase: str, resident: int, device: int | None) -> list[Event]:
        """An event if that is more than was reported by a MiB and a hundredth."""
        new = [_raise(self._resident, phase, resident), device is not None and _raise(self._device, phase, device)]
        return [MemoryPeaks(dict(self._resident), dict(self._device))] if any(new) else []


def _raise(peaks: dict[str, int], phase: str, value: int) -> bool:
    before = peaks.get(phase)
    if before is not None and value < before * 1.01 + _STEP:
        return False
    peaks[phase] = value
    return True


def has_changed(before: Heartbeat, now: Heartbeat) -> bool:
    """Whether the difference is large enough to be sent."""
    if now.step != before.step:
        return True
    host = abs(now.resident - before.resident)
    return host >= _STEP or abs((now.device_used or 0) - (before.device_used or 0)) >= _STEP


def resident() -> int:
    """Resident memory of this process, in bytes."""
    try:
        # Without a file object, which takes several times as long: this is done ten times a second.
        fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(fd, 256).split()[1]) * mmap.PAGESIZE
        finally:
            os.close(fd)
    except OSError:
        import psutil

        return int(psutil.Process().memory_info().rss)


def _on_device() -> tuple[int | None, int | None]:
    """Bytes reserved and in total on the device that `LOCAL_RANK` selects; `None` if CUDA is not in use.

    Reads torch's allocator, which neither waits for a device nor opens one.
    """
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return None, None
    device = int(os.environ.get("LOCAL_RANK", "0")) % cuda.device_count()
    return int(cuda.memory_reserved(device)), int(cuda.get_device_properties(device).total_memory)


def _allocated() -> int:
    """Bytes of the tensors on the device that `LOCAL_RANK` selects, once CUDA is in use."""
    cuda: Any = sys.modules["torch"].cuda
    return int(cuda.memory_allocated(int(os.environ.get("LOCAL_RANK", "0")) % cuda.device_count()))
