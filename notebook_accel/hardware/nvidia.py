"""Lists NVIDIA GPUs through NVML, which creates no CUDA context."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from notebook_accel.hardware.device_probe import Device, DeviceUse

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
        return _list(self.library)

    def use(self) -> dict[str, DeviceUse]:
        found: dict[str, DeviceUse] = {}
        with opened(self.library) as nvml:
            for handle in handles(nvml):
                running: Sequence[Any] = ()
                with contextlib.suppress(nvml.NVMLError):  # some containers are not permitted to
                    running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
                holders = {each.pid: each.usedGpuMemory or 0 for each in running}
                memory = nvml.nvmlDeviceGetMemoryInfo(handle)
                found[text(nvml.nvmlDeviceGetUUID(handle))] = DeviceUse(memory.used, holders)
        return found


@functools.cache
def _list(library: Callable[[], Any]) -> tuple[Device, ...]:
    """The GPUs, queried once per process: a query takes tens of milliseconds."""
    with opened(library) as nvml:
        return tuple(_describe(nvml, handle) for handle in handles(nvml))


def _describe(nvml: Any, handle: Any) -> Device:
    mode = 0
    with contextlib.suppress(nvml.NVMLError):  # not every GPU has compute modes
        mode = nvml.nvmlDeviceGetComputeMode(handle)
    return Device(
        text(nvml.nvmlDeviceGetName(handle)),
        text(nvml.nvmlDeviceGetUUID(handle)),
        nvml.nvmlDeviceGetMemoryInfo(handle).total,
        _ACCESS.get(mode, "shared"),
        tuple(_slice(nvml, each) for each in slice_handles(nvml, handle)),
    )


def _slice(nvml: Any, handle: Any) -> Device:
    return Device(
        text(nvml.nvmlDeviceGetName(handle)),
        text(nvml.nvmlDeviceGetUUID(handle)),
        nvml.nvmlDeviceGetMemoryInfo(handle).total,
    )


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


def handles(nvml: Any) -> list[Any]:
    """The handle of each GPU, in the driver's order."""
    if nvml is None:
        return []
    return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]


def text(value: str | bytes) -> str:
    """A name as text; older versions of `pynvml` return bytes."""
    return value.decode() if isinstance(value, bytes) else value
