"""NVIDIA's GPUs through NVML, which creates no CUDA context: which there are, their memory, and what they measure.

Source: NVIDIA's NVML API reference, "Device Queries", "Field Value Enums" and `nvmlClocksEventReasons`.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from notebook_accel.hardware.device_probe import (
    HARDWARE,
    NOT_COUNTED,
    POWER_BRAKE,
    POWER_LIMIT,
    TEMPERATURE,
    Device,
    DeviceUse,
    GpuReading,
    query,
)

_ACCESS = {1: "exclusive", 2: "prohibited", 3: "exclusive"}
"""By the number of a compute mode; 0 is `shared`."""
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


def installed() -> Any:
    """NVIDIA's management library as a module; `None` if it is not installed."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")  # what pynvml would load; the import alone takes 20 ms
        import pynvml
    except (OSError, ImportError):
        return None
    return pynvml


@dataclass(frozen=True)
class NvmlProbe:
    """Queries the NVIDIA driver."""

    library: Callable[[], Any] = installed
    """Returns the module, or a stand-in such as `FakeNvml`; `None` if there is none."""
    vendor: str = "NVIDIA"

    def devices(self) -> Sequence[Device]:
        with opened(self.library) as nvml:
            return tuple(_describe(nvml, handle) for handle in handles(nvml))

    def use(self) -> dict[str, DeviceUse]:
        found: dict[str, DeviceUse] = {}
        with opened(self.library) as nvml:
            for handle in handles(nvml):
                # Some containers are not permitted to see processes.
                running = query(nvml, nvml.NVMLError, "nvmlDeviceGetComputeRunningProcesses", handle) or ()
                holders = {each.pid: each.usedGpuMemory or 0 for each in running}
                memory = query(nvml, nvml.NVMLError, "nvmlDeviceGetMemoryInfo", handle)
                if memory is not None:
                    found[text(nvml.nvmlDeviceGetUUID(handle))] = DeviceUse(memory.used, holders)
        return found


def _describe(nvml: Any, handle: Any) -> Device:
    mode = query(nvml, nvml.NVMLError, "nvmlDeviceGetComputeMode", handle)  # not every GPU has compute modes
    slices = tuple(_device(nvml, each) for each in slice_handles(nvml, handle))
    return replace(_device(nvml, handle), access=_ACCESS.get(mode, "shared"), slices=slices)


def _device(nvml: Any, handle: Any) -> Device:
    """A GPU or a slice."""
    memory = query(nvml, nvml.NVMLError, "nvmlDeviceGetMemoryInfo", handle)  # not where it is the CPU's
    name, uuid = text(nvml.nvmlDeviceGetName(handle)), text(nvml.nvmlDeviceGetUUID(handle))
    return Device(name, uuid, 0 if memory is None else memory.total)


def slice_handles(nvml: Any, handle: Any) -> Iterator[Any]:
    """The handles of the compute instances of a GPU in MIG mode; none if it is not in that mode."""
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(handle) if current else 0
    except nvml.NVMLError:  # a GPU without MIG
        return
    for index in range(count):
        with contextlib.suppress(nvml.NVMLError):  # none has been made here
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)


@contextlib.contextmanager
def opened(library: Callable[[], Any]) -> Iterator[Any]:
    """The library, initialized; `None` if there is none, or no driver, or no GPU."""
    nvml = library()
    if nvml is not None:
        try:
            nvml.nvmlInit()
        except nvml.NVMLError:
            nvml = None
    try:
        yield nvml
    finally:
        if nvml is not None:
            nvml.nvmlShutdown()


def handles(nvml: Any) -> Iterator[Any]:
    """The handle of each GPU, in the driver's order; without those that have fallen off the bus."""
    for index in range(0 if nvml is None else nvml.nvmlDeviceGetCount()):
        with contextlib.suppress(nvml.NVMLError):
            yield nvml.nvmlDeviceGetHandleByIndex(index)


def text(value: str | bytes) -> str:
    """A name as text; older versions of `pynvml` return bytes."""
    return value.decode() if isinstance(value, bytes) else value


class NvmlSensors:
    """Queries the NVIDIA driver; holds its library open until `close`."""

    def __init__(self, library: Callable[[], Any] = installed) -> None:
        self._stack = contextlib.ExitStack()
        self._nvml = self._stack.enter_context(opened(library))
        self._devices = dict(self._find())
        """For each GPU or slice, by its UUID: its name, its handle, and the handle of the whole GPU."""

    def read(self) -> dict[str, GpuReading]:
        return {uuid: self._read(*device) for uuid, device in self._devices.items()}

    def energy(self, uuid: str) -> tuple[str, float]:
        _, _, whole = self._devices[uuid]
        millijoules = self._query("nvmlDeviceGetTotalEnergyConsumption", whole)
        if millijoules is None:  # from the Volta generation on
            raise OSError(NOT_COUNTED.format(uuid))
        return text(self._nvml.nvmlDeviceGetUUID(whole)), millijoules / 1000

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
