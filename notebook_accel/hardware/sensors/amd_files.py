"""Reads what AMD's driver measures from the files of Linux's kernel driver, which need no library.

Sources: `Documentation/gpu/amdgpu/thermal.rst` and `ras.rst` of Linux 6.12, and `gpu_metrics_v1_3` in
`drivers/gpu/drm/amd/include/kgd_pp_interface.h`; the bits of its throttle status are in `amdgpu_smu.h`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from notebook_accel.hardware.amd import Node
from notebook_accel.hardware.sensors.gpu_readings import POWER_LIMIT, TEMPERATURE, GpuReading

_SENSORS = ("junction", "edge")
"""The names of temperatures, the hottest point first."""
_UNCORRECTED = re.compile(r"^ue: (\d+)$", re.MULTILINE)
_WITH_STATUS = (1, 3)
"""The version of `gpu_metrics` that ends with a throttle status that is the same for all GPUs."""
_UNKNOWN = 2**64 - 1
_POWER_BITS, _TEMPERATURE_BITS = (1 << 24) - 1, ((1 << 16) - 1) << 32


def read(node: Node) -> GpuReading:
    """Reads a few small files of a GPU."""
    device = node.device
    monitor = next(iter(sorted(device.glob("hwmon/hwmon*"))), device / "hwmon")
    power = _number(monitor / "power1_average")
    power = _number(monitor / "power1_input") if power is None else power
    limit, temperature = _number(monitor / "power1_cap"), _temperature(monitor)
    return GpuReading(
        node.gpu.name,
        utilization=_number(device / "gpu_busy_percent"),
        memory_used=_number(device / "mem_info_vram_used"),
        memory_total=node.gpu.total or None,
        temperature=None if temperature is None else temperature / 1000,
        power=None if power is None else power / 1e6,
        power_limit=None if limit is None else limit / 1e6,
        throttled=tuple(_throttled(device)),
        errors=_errors(device),
    )


def _temperature(monitor: Path) -> int | None:
    """Thousandths of a degree, at the hottest point that is measured."""
    by_label = {}
    for file in monitor.glob("temp*_label"):
        with contextlib.suppress(OSError):
            by_label[file.read_text().strip()] = file.with_name(file.name.replace("_label", "_input"))
    named = next((by_label[label] for label in _SENSORS if label in by_label), monitor / "temp1_input")
    return _number(named)


def _throttled(device: Path) -> Iterator[str]:
    with contextlib.suppress(OSError, IndexError):
        metrics = (device / "gpu_metrics").read_bytes()
        size = int.from_bytes(metrics[:2], "little")
        status = int.from_bytes(metrics[size - 8 : size], "little")
        if (metrics[2], metrics[3]) != _WITH_STATUS or status == _UNKNOWN:
            return
        if status & _TEMPERATURE_BITS:
            yield TEMPERATURE
        if status & _POWER_BITS:
            yield POWER_LIMIT


def _errors(device: Path) -> dict[str, int]:
    found = {}
    replays = _number(device / "pcie_replay_count")
    if replays is not None:
        found["PCIe replays"] = replays
    for file in device.glob("ras/*_err_count"):
        with contextlib.suppress(OSError):
            if match := _UNCORRECTED.search(file.read_text()):
                name = "uncorrected memory errors" if file.name.startswith("umc") else "uncorrected errors"
                found[name] = found.get(name, 0) + int(match[1])
    return found


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
