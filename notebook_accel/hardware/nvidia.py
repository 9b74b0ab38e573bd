"""Lists NVIDIA GPUs through NVML, which creates no CUDA context."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from notebook_accel.hardware.device_probe import Device, DeviceUse, query

_ACCESS = {1: "exclusive", 2: "prohibited", 3: "exclusive"}
"""By the number of a compute mode; 0 is `shared`."""


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
