"""Reads what AMD's driver measures through amdsmi, the management library of ROCm.

Source: the AMD SMI Python API reference, and the interface of amdsmi 7.0, where `"N/A"` is not available.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from notebook_accel.hardware.device_probe import query

_LIBRARY = "libamd_smi.so"
_SENSORS = ("HOTSPOT", "EDGE")
"""Where the temperature is measured, the hottest point first."""


def installed() -> Any:
    """The library as a module; `None` if it is not installed."""
    spec = importlib.util.find_spec("amdsmi")
    if spec is None or not _has_library(Path(spec.origin or "").parent):
        return None
    try:
        import amdsmi
    except Exception:  # of another version than its library, it can raise anything
        return None
    return amdsmi


def _has_library(package: Path) -> bool:
    """Whether the module would find its library; without it, the module prints lines as it is imported."""
    rocm = Path(os.environ.get("ROCM_HOME") or os.environ.get("ROCM_PATH") or "/opt/rocm")
    if any((folder / _LIBRARY).is_file() for folder in (rocm / "lib", package)):
        return True
    with contextlib.suppress(OSError):
        ctypes.CDLL(_LIBRARY)
        return True
    return False


class AmdSmi:
    """Queries the AMD driver; holds the library open until `close`."""

    def __init__(self, library: Callable[[], Any] = installed) -> None:
        self._smi = library()
        self._handles: dict[str, Any] = {}
        """By the number by which the kernel's driver knows a GPU, or a partition of one."""
        if self._smi is None:
            return
        try:
            self._smi.amdsmi_init()
        except self._smi.AmdSmiException:  # no driver
            self._smi = None
            return
        for handle in self._query("amdsmi_get_processor_handles") or ():
            about = self._query("amdsmi_get_gpu_kfd_info", handle)
            if about is not None:  # ROCm 6.2 and older can't tell; the driver's files serve then
                self._handles[str(about["kfd_id"])] = handle

    def read(self, number: str) -> dict[str, Any]:
        """Fields of `GpuReading` that are measured on a GPU; none if the library doesn't list it.

        Args:
            number: What the kernel's driver calls the GPU.
        """
        handle = self._handles.get(number)
        if handle is None:
            return {}
        use, power = self._query("amdsmi_get_gpu_activity", handle), self._query("amdsmi_get_power_info", handle) or {}
        limit = (self._query("amdsmi_get_power_cap_info", handle) or {}).get("power_cap")
        vram = self._smi.AmdSmiMemoryType.VRAM
        found = {
            "utilization": (use or {}).get("gfx_activity"),
            "memory_used": self._query("amdsmi_get_gpu_memory_usage", handle, vram),
            "memory_total": self._query("amdsmi_get_gpu_memory_total", handle, vram),
            "temperature": self._temperature(handle),
            "power": next(
                filter(_is_number, (power.get(f"{kind}_socket_power") for kind in ("current", "average"))), None
            ),
            "power_limit": limit / 1e6 if _is_number(limit) and limit else None,
        }
        return {name: value for name, value in found.items() if _is_number(value)}

    def close(self) -> None:
        """Releases the library."""
        self._handles = {}
        if self._smi is not None:
            with contextlib.suppress(self._smi.AmdSmiException):
                self._smi.amdsmi_shut_down()
        self._smi = None

    def _temperature(self, handle: Any) -> int | None:
        """Degrees Celsius, at the hottest point that is measured."""
        types, current = self._smi.AmdSmiTemperatureType, self._smi.AmdSmiTemperatureMetric.CURRENT
        found = (self._query("amdsmi_get_temp_metric", handle, getattr(types, name), current) for name in _SENSORS)
        return next((degrees for degrees in found if degrees), None)

    def _query(self, function: str, *arguments: Any) -> Any:
        return query(self._smi, self._smi.AmdSmiException, function, *arguments)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))
