"""A stand-in for NVIDIA's management library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from notebook_accel.hardware.fakes.fake_gpu import FakeGpu


class FakeNvml:
    """Those functions of `pynvml` that detection calls. A handle is the GPU and its UUID."""

    class NVMLError(Exception):
        """As in `pynvml`."""

    NVML_FI_DEV_ECC_DBE_VOL_TOTAL = 4
    NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL = 38
    NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL = 45
    NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL = 52
    NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL = 59
    NVML_FI_DEV_PCIE_REPLAY_COUNTER = 94
    NVML_VALUE_TYPE_UNSIGNED_INT = 1
    NVML_VALUE_TYPE_UNSIGNED_LONG_LONG = 3
    NVML_ERROR_NOT_SUPPORTED = 3

    def __init__(self, gpus: Sequence[FakeGpu]) -> None:
        self._gpus = [(gpu, f"GPU-{index:08x}-0000") for index, gpu in enumerate(gpus)]
        self._slices = {uuid for gpu, uuid in self._gpus for uuid in self._slice_uuids(gpu, uuid)}
        self._lost: set[int] = set()
        self._open = 0

    @property
    def is_open(self) -> bool:
        """Whether somebody has not called `nvmlShutdown` yet."""
        return self._open > 0

    def change(self, index: int, **fields: Any) -> None:
        """Changes what is measured on a GPU, for handles from before, too."""
        gpu, _ = self._gpus[index]
        for name, value in fields.items():
            object.__setattr__(gpu, name, value)

    def lose(self, *indices: int) -> None:
        """Has these GPUs fall off the bus, and brings all others back."""
        self._lost = set(indices)

    @staticmethod
    def _slice_uuids(gpu: FakeGpu, uuid: str) -> list[str]:
        return [f"MIG-{uuid[4:12]}-{index:04x}" for index in range(len(gpu.slices))]

    def nvmlInit(self) -> None:
        if not self._gpus:
            raise self.NVMLError("Driver Not Loaded")
        self._open += 1

    def nvmlShutdown(self) -> None:
        self._open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self._gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> tuple[FakeGpu, str]:
        if not self._open:
            raise self.NVMLError("Uninitialized")
        if index in self._lost:
            raise self.NVMLError("GPU is lost")
        return self._gpus[index]

    def nvmlDeviceGetName(self, handle: tuple[FakeGpu, str]) -> str:
        return handle[0].name

    def nvmlDeviceGetUUID(self, handle: tuple[FakeGpu, str]) -> bytes:
        return handle[1].encode()  # as older versions return it

    def nvmlDeviceGetMemoryInfo(self, handle: tuple[FakeGpu, str]) -> SimpleNamespace:
        if not handle[0].total:
            raise self.NVMLError("Not Supported")
        return SimpleNamespace(total=handle[0].total, used=sum(handle[0].held.values()))

    def nvmlDeviceGetComputeRunningProcesses(self, handle: tuple[FakeGpu, str]) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=held or None) for pid, held in handle[0].held.items()]

    def nvmlDeviceGetComputeMode(self, handle: tuple[FakeGpu, str]) -> int:
        return handle[0].mode

    def nvmlDeviceGetMigMode(self, handle: tuple[FakeGpu, str]) -> tuple[int, int]:
        if "GeForce" in handle[0].name:
            raise self.NVMLError("Not Supported")
        return (1, 1) if handle[0].slices else (0, 0)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: tuple[FakeGpu, str]) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: tuple[FakeGpu, str], index: int) -> tuple[FakeGpu, str]:
        gpu, uuid = handle
        if index >= len(gpu.slices):
            raise self.NVMLError("Not Found")
        return gpu.slices[index], self._slice_uuids(gpu, uuid)[index]

    def nvmlDeviceGetUtilizationRates(self, handle: tuple[FakeGpu, str]) -> SimpleNamespace:
        if handle[1] in self._slices:
            raise self.NVMLError("Not Supported")
        return SimpleNamespace(gpu=handle[0].utilization, memory=0)

    def nvmlDeviceGetTemperature(self, handle: tuple[FakeGpu, str], sensor: int) -> int:
        if sensor != 0:
            raise self.NVMLError("Invalid Argument")
        return handle[0].temperature

    def nvmlDeviceGetPowerUsage(self, handle: tuple[FakeGpu, str]) -> int:
        return handle[0].power * 1000

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: tuple[FakeGpu, str]) -> int:
        return handle[0].power_limit * 1000

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: tuple[FakeGpu, str]) -> int:
        return handle[0].throttled

    def nvmlDeviceGetFieldValues(self, handle: tuple[FakeGpu, str], fieldIds: Sequence[int]) -> list[SimpleNamespace]:
        counters = {getattr(self, name): value for name, value in handle[0].errors.items()}
        return [self._field(number, counters.get(number)) for number in fieldIds]

    def _field(self, number: int, value: int | None) -> SimpleNamespace:
        """A `c_nvmlFieldValue_t`; its value is a union, of which the member of `valueType` counts."""
        small = number == self.NVML_FI_DEV_PCIE_REPLAY_COUNTER
        return SimpleNamespace(
            fieldId=number,
            nvmlReturn=0 if value is not None else self.NVML_ERROR_NOT_SUPPORTED,
            valueType=self.NVML_VALUE_TYPE_UNSIGNED_INT if small else self.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
            value=SimpleNamespace(**{"uiVal" if small else "ullVal": value or 0}),
        )


def nvml(*gpus: FakeGpu) -> Callable[[], FakeNvml]:
    """The `library` of an `NvmlProbe` on a machine with these GPUs."""
    library = FakeNvml(gpus)
    return lambda: library
