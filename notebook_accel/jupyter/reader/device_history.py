"""Reads the devices of this machine, and remembers the last five minutes of what it has read."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from notebook_accel import hardware
from notebook_accel.events import GpuUsage
from notebook_accel.hardware import Sensors
from notebook_accel.hardware.host_meter import HostMeter, HostReading
from notebook_accel.jupyter.model import Device, DeviceListing, Gauge, Moment
from notebook_accel.launch.job import resources
from notebook_accel.launch.job.resources import GpuMeter
from notebook_accel.rank_spans import counted

SECONDS = 300.0
"""How long measurements are kept."""
_INTERVAL = 0.9
"""Seconds for which a reading is reused, so that several browsers cause no more readings than one."""
_PAUSE = 10.0
"""Seconds between two readings from which on a chart has a gap; nothing is read while no sidebar is visible."""
_MACHINE = "cpu"
"""The ID of the machine: what identifies the device of jobs without GPUs."""
_HOTTEST = 110.0
"""Degrees Celsius at the top of a chart."""


@dataclass
class _Measured:
    """One gauge over time."""

    text: str = ""
    points: deque[tuple[float, float]] = field(default_factory=deque)
    """The time of each reading, and the fraction of the most that is possible."""

    def add(self, at: float, fraction: float, text: str) -> None:
        self.text = text
        self.points.append((at, min(1.0, max(0.0, fraction))))
        while self.points[0][0] < at - SECONDS:
            self.points.popleft()

    def gauge(self, name: str, now: float) -> Gauge:
        lines: list[list[Moment]] = []
        before = -_PAUSE
        for at, fraction in self.points:
            if at - before >= _PAUSE or not lines:
                lines.append([])
            before = at
            lines[-1].append((round(1000 * (1 - (now - at) / SECONDS)), round(1000 * fraction)))
        return {"name": name, "value": self.text, "lines": lines}


class DeviceHistory:
    """The devices of this machine over time. For one thread at a time.

    Args:
        folder: A folder on the disk of interest.
        open_sensors: Opens the sensors of its GPUs.
    """

    def __init__(self, folder: Path, open_sensors: Callable[[], list[Sensors]] = hardware.open_sensors) -> None:
        self._host, self._gpus = HostMeter(folder), GpuMeter(open_sensors)
        self._gauges: dict[tuple[str, str], _Measured] = {}
        """By the ID of the device, and the name of the gauge."""
        self._listing: DeviceListing | None = None
        self._read_at = 0.0

    def listing(self) -> DeviceListing:
        """All devices, read now unless that was done just before."""
        now = time.monotonic()
        if self._listing is None or now - self._read_at >= _INTERVAL:
            self._read_at = now
            self._listing = self._read(now)
        return self._listing

    def close(self) -> None:
        """Releases the libraries of the GPUs' drivers; the next reading opens them again."""
        self._gpus.close()

    def _read(self, now: float) -> DeviceListing:
        devices, problem = [self._machine(self._host.read(), now)], ""
        try:
            found = self._gpus.read()
        except Exception as error:  # a driver's library
            found, problem = {}, f"The GPUs can't be read: {type(error).__name__}: {error}"
        for index, (uuid, (name, gpu)) in enumerate(found.items()):
            self._add_gpu(uuid, gpu, now)
            warning = " ".join(f"{sentence}." for sentence in resources.gpu_warnings(gpu))
            devices.append(self._device(uuid, f"GPU {index} · {name}", now, warning))
        return {"devices": devices, "problem": problem}

    def _machine(self, reading: HostReading, now: float) -> Device:
        cores = counted(reading.cores, "core")
        if reading.cpu is not None:
            self._add(_MACHINE, "CPU", reading.cpu / 100, f"{reading.cpu:.0f}% of {cores}", now)
        self._gauges.setdefault((_MACHINE, "CPU"), _Measured(cores))
        for name, space in reading.spaces.items():
            if space.total:
                self._add(_MACHINE, name, space.used / space.total, _of(space.used, space.total), now)
        return self._device(_MACHINE, "This machine", now, "")

    def _add_gpu(self, uuid: str, gpu: GpuUsage, now: float) -> None:
        if gpu.utilization is not None:
            self._add(uuid, "utilization", gpu.utilization / 100, f"{gpu.utilization:.0f}%", now)
        if gpu.memory_used is not None and gpu.memory_total:
            self._add(uuid, "memory", gpu.memory_used / gpu.memory_total, _of(gpu.memory_used, gpu.memory_total), now)
        if gpu.temperature is not None:
            self._add(uuid, "temperature", gpu.temperature / _HOTTEST, f"{gpu.temperature:.0f} °C", now)
        if gpu.power is not None and gpu.power_limit:
            self._add(uuid, "power", gpu.power / gpu.power_limit, f"{gpu.power:.0f} of {gpu.power_limit:.0f} W", now)

    def _add(self, device: str, name: str, fraction: float, text: str, now: float) -> None:
        self._gauges.setdefault((device, name), _Measured()).add(now, fraction, text)

    def _device(self, device: str, title: str, now: float, warning: str) -> Device:
        own: Mapping[str, _Measured] = {name: each for (of, name), each in self._gauges.items() if of == device}
        gauges = [each.gauge(name, now) for name, each in own.items()]
        return {"id": device, "title": title, "gauges": gauges, "warning": warning}


def _of(used: int, total: int) -> str:
    """`41 of 80 GB`, `0.5 of 24 GB`, `12 of 64 MB`."""
    unit, name = (2**30, "GB") if total >= 2**30 else (2**20, "MB")
    first, second = (f"{each:.1f}" if 0 < each < 9.95 else f"{each:.0f}" for each in (used / unit, total / unit))
    return f"{first} of {second} {name}"
