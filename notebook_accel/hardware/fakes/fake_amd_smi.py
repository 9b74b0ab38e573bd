"""A stand-in for amdsmi, ROCm's management library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

from notebook_accel.hardware.fakes.fake_gpu import FakeGpu


class FakeAmdSmi:
    """Those functions of `amdsmi` that detection calls. A handle is the GPU's index.

    Args:
        gpus: The GPUs, in the order of `write_amd_files`.
        unsupported: Functions that the driver doesn't support, as on the guests of virtual machines.
    """

    class AmdSmiException(Exception):
        """As in `amdsmi`, where it is the base of all others."""

    class AmdSmiLibraryException(AmdSmiException):
        """As in `amdsmi`, with a code."""

        def __init__(self, err_code: int) -> None:
            super().__init__(err_code)
            self.err_code = err_code

    class AmdSmiInitFlags(IntEnum):
        """Which processors the library is opened for."""

        INIT_AMD_GPUS = 2

    class AmdSmiMemoryType(IntEnum):
        """Which memory is meant."""

        VRAM = 0

    class AmdSmiTemperatureType(IntEnum):
        """Where the temperature is measured."""

        EDGE = 0
        HOTSPOT = 1

    class AmdSmiTemperatureMetric(IntEnum):
        """The temperature now, or a limit."""

        CURRENT = 0

    NOT_SUPPORTED, DRIVER_NOT_LOADED, NOT_INIT = 2, 34, 32
    """Codes of errors: of `amdsmi_wrapper`, without `AMDSMI_STATUS_`."""

    def __init__(self, gpus: Sequence[FakeGpu], unsupported: Sequence[str] = ()) -> None:
        self._gpus = list(gpus)
        self._unsupported = frozenset(unsupported)
        self._open = 0

    @property
    def is_open(self) -> bool:
        """Whether somebody has not called `amdsmi_shut_down` yet."""
        return self._open > 0

    def amdsmi_init(self, flag: AmdSmiInitFlags = AmdSmiInitFlags.INIT_AMD_GPUS) -> None:
        if not self._gpus:
            raise self.AmdSmiLibraryException(self.DRIVER_NOT_LOADED)
        self._open += 1

    def amdsmi_shut_down(self) -> None:
        self._open -= 1

    def amdsmi_get_processor_handles(self) -> list[int]:
        if not self._open:
            raise self.AmdSmiLibraryException(self.NOT_INIT)
        return list(range(len(self._gpus)))

    def amdsmi_get_gpu_kfd_info(self, processor_handle: int) -> dict[str, Any]:
        self._check("amdsmi_get_gpu_kfd_info")
        return {"kfd_id": 50_000 + processor_handle, "node_id": processor_handle + 1, "current_partition_id": 0}

    def amdsmi_get_gpu_activity(self, processor_handle: int) -> dict[str, Any]:
        self._check("amdsmi_get_gpu_activity")
        return {"gfx_activity": self._gpus[processor_handle].utilization, "umc_activity": 0, "mm_activity": "N/A"}

    def amdsmi_get_gpu_memory_total(self, processor_handle: int, mem_type: AmdSmiMemoryType) -> int:
        self._check("amdsmi_get_gpu_memory_total")
        return self._gpus[processor_handle].total

    def amdsmi_get_gpu_memory_usage(self, processor_handle: int, mem_type: AmdSmiMemoryType) -> int:
        self._check("amdsmi_get_gpu_memory_usage")
        return sum(self._gpus[processor_handle].held.values())

    def amdsmi_get_temp_metric(
        self, processor_handle: int, sensor_type: AmdSmiTemperatureType, metric: AmdSmiTemperatureMetric
    ) -> int:
        self._check("amdsmi_get_temp_metric")
        is_edge = sensor_type == self.AmdSmiTemperatureType.EDGE
        return self._gpus[processor_handle].temperature - (5 if is_edge else 0)

    def amdsmi_get_power_info(self, processor_handle: int) -> dict[str, Any]:
        """Power as MI300 reports it, which older cards report as the average."""
        self._check("amdsmi_get_power_info")
        power = self._gpus[processor_handle].power
        return {
            "socket_power": power,
            "current_socket_power": power,
            "average_socket_power": "N/A",
            "gfx_voltage": "N/A",
            "soc_voltage": "N/A",
            "mem_voltage": "N/A",
            "power_limit": self._gpus[processor_handle].power_limit,
        }

    def amdsmi_get_power_cap_info(self, processor_handle: int) -> dict[str, Any]:
        self._check("amdsmi_get_power_cap_info")
        limit = self._gpus[processor_handle].power_limit * 10**6
        return {
            "power_cap": limit,
            "default_power_cap": limit,
            "dpm_cap": 0,
            "min_power_cap": 0,
            "max_power_cap": limit,
        }

    def _check(self, function: str) -> None:
        if function in self._unsupported:
            raise self.AmdSmiLibraryException(self.NOT_SUPPORTED)


def amd_smi(*gpus: FakeGpu) -> Callable[[], FakeAmdSmi]:
    """The `library` of `AmdSensors` on a machine with these GPUs."""
    library = FakeAmdSmi(gpus)
    return lambda: library
