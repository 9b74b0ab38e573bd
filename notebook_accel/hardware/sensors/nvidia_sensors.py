"""Reads what NVIDIA's driver measures, through NVML, which creates no CUDA context.

Source: NVIDIA's NVML API reference, "Device Queries", "Field Value Enums" and `nvmlClocksEventReasons`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from notebook_accel.hardware.device_probe import query
from notebook_accel.hardware.nvidia import handles, installed, opened, slice_handles, text
from notebook_accel.hardware.sensors.gpu_readings import HARDWARE, POWER_BRAKE, POWER_LIMIT, TEMPERATURE, GpuReading

_REASONS = {0x20: TEMPERATURE, 0x40: TEMPERATURE, 0x80: POWER_BRAKE, 0x8: HARDWARE, 0x4: POWER_LIMIT}
"""By the bit of `nvmlClocksEventReasons`. The others are settings of the user, and an idle GPU."""
_HARDWARE_BIT, _HARDWARE_CAUSES = 0x8, 0x40 | 0x80
"""The bit of any slowdown by the hardware, and those that say why."""
_ERRORS = {
    4: "uncorrected memory errors",  # NVML_FI_DEV_ECC_DBE_VOL_TOTAL
    94: "PCIe replays",  # NVML_FI_DEV_PCIE_REPLAY_COUNTER
    38: "NVLink CRC errors",  # NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL
    45: "NVLink CRC errors",  # NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL
    52: "NVLink replays",  # NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL
    59: "NVLink recoveries",  # NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL
}
"""Counters by the number of their field."""
_VALUES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""The members of a field's value, by its type."""
_GPU_TEMPERATURE = 0


class NvmlSensors:
    """Queries the NVIDIA driver; holds its library open until `close`."""

    def __init__(self, library: Callable[[], Any] = installed) -> None:
        self._stack = contextlib.ExitStack()
        self._nvml = self._stack.enter_context(opened(library))
        self._devices = dict(self._find())
        """For each GPU or slice, by its UUID: its name, its handle, and the handle of the whole GPU."""

    def read(self) -> dict[str, GpuReading]:
        return {uuid: self._read(*device) for uuid, device in self._devices.items()}

    def close(self) -> None:
        self._devices = {}
        self._stack.close()

    def _find(self) -> Iterator[tuple[str, tuple[str, Any, Any]]]:
        nvml = self._nvml
        for whole in handles(nvml):
            for handle in (whole, *slice_handles(nvml, whole)):
                yield text(nvml.nvmlDeviceGetUUID(handle)), (text(nvml.nvmlDeviceGetName(handle)), handle, whole)

    def _read(self, name: str, handle: Any, whole: Any) -> GpuReading:
        memory = self._query("nvmlDeviceGetMemoryInfo", handle)
        use = self._query("nvmlDeviceGetUtilizationRates", handle)  # not measured for a slice
        power, limit = (
            self._query("nvmlDeviceGetPowerUsage", whole),
            self._query("nvmlDeviceGetEnforcedPowerLimit", whole),
        )
        return GpuReading(
            name,
            utilization=None if use is None else use.gpu,
            memory_used=None if memory is None else memory.used,
            memory_total=None if memory is None else memory.total,
            temperature=self._query("nvmlDeviceGetTemperature", whole, _GPU_TEMPERATURE),
            power=None if power is None else power / 1000,
            power_limit=None if limit is None else limit / 1000,
            throttled=_reasons(self._event_reasons(whole)),
            errors=self._errors(whole),
        )

    def _event_reasons(self, handle: Any) -> int:
        found = self._query("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if found is None:  # the name before driver 535
            found = self._query("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return found or 0

    def _errors(self, handle: Any) -> dict[str, int]:
        found: dict[str, int] = {}
        for field in self._query("nvmlDeviceGetFieldValues", handle, list(_ERRORS)) or ():
            if field.nvmlReturn == 0:
                name = _ERRORS[field.fieldId]
                found[name] = found.get(name, 0) + int(getattr(field.value, _VALUES[field.valueType]))
        return found

    def _query(self, function: str, *arguments: Any) -> Any:
        return query(self._nvml, self._nvml.NVMLError, function, *arguments)


def _reasons(bits: int) -> tuple[str, ...]:
    if bits & _HARDWARE_CAUSES:
        bits &= ~_HARDWARE_BIT
    return tuple(dict.fromkeys(name for bit, name in _REASONS.items() if bits & bit))
