"""Machines that are not there: stand-ins for NVIDIA's library, the files of AMD's driver, and torch's CUDA memory.

They have the interfaces of the real ones, so that detection can be tried on any machine:

    probe = NvmlProbe(lambda: FakeNvml([FakeGpu("NVIDIA H100", 80 << 30)] * 8))
    hardware.detect({}, probe)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any


@dataclass(frozen=True)
class FakeGpu:
    """One GPU."""

    name: str
    total: int
    """Memory in bytes."""
    held: Mapping[int, int] = field(default_factory=dict)
    """Bytes that each process holds, by its ID."""
    mode: int = 0
    """The number of its compute mode: 0 is the default, 2 PROHIBITED, 3 EXCLUSIVE_PROCESS."""
    slices: Sequence[FakeGpu] = ()
    """Its slices, if it is in MIG mode."""
    utilization: int = 0
    """Percent."""
    temperature: int = 35
    """Degrees Celsius."""
    power: int = 70
    """Watts."""
    power_limit: int = 700
    """Watts."""
    throttled: int = 0
    """Why its clock rate is reduced: bits of `nvmlClocksEventReasons`, or of AMD's `indep_throttle_status`."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Its counters, by field of NVML such as `NVML_FI_DEV_PCIE_REPLAY_COUNTER`, or by file of AMD's driver."""


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
        return self._gpus[index]

    def nvmlDeviceGetName(self, handle: tuple[FakeGpu, str]) -> str:
        return handle[0].name

    def nvmlDeviceGetUUID(self, handle: tuple[FakeGpu, str]) -> bytes:
        return handle[1].encode()  # as older versions return it

    def nvmlDeviceGetMemoryInfo(self, handle: tuple[FakeGpu, str]) -> SimpleNamespace:
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


class FakeCuda:
    """As much of `torch.cuda` as a rank asks when a device's memory has run out.

    Args:
        blocks: For each live block its bytes, and the frames that allocated it, innermost first, each with its file,
            line, and function. Frames are empty unless `torch.cuda.memory._record_memory_history` was called.
    """

    def __init__(self, blocks: Sequence[tuple[int, Sequence[tuple[str, int, str]]]]) -> None:
        self._blocks = blocks
        self.memory = self

    def is_initialized(self) -> bool:
        return True

    def _snapshot(self) -> dict[str, Any]:
        address, blocks = 0x7F0000000000, []
        for size, frames in self._blocks:
            named = [{"filename": file, "line": line, "name": name} for file, line, name in frames]
            block = {"address": address, "size": size, "requested_size": size, "state": "active_allocated"}
            blocks.append({**block, "frames": named})
            address += size
        total = sum(size for size, _ in self._blocks)
        free = {"address": address, "size": 2**21, "requested_size": 0, "state": "inactive", "frames": []}
        segment = {
            "device": 0,
            "address": 0x7F0000000000,
            "total_size": total + 2**21,
            "allocated_size": total,
            "active_size": total,
            "requested_size": total,
            "stream": 0,
            "segment_type": "large",
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "blocks": [*blocks, free],
        }
        traces = [{"action": "oom", "addr": 0, "size": 2**30, "stream": 0, "device_free": 2**20, "frames": []}]
        return {"segments": [segment], "device_traces": [traces], "allocator_settings": {}, "external_annotations": []}


def nvml(*gpus: FakeGpu) -> Callable[[], FakeNvml]:
    """The `library` of an `NvmlProbe` on a machine with these GPUs."""
    library = FakeNvml(gpus)
    return lambda: library


def write_amd_files(root: Path, gpus: Sequence[FakeGpu], *, products: bool = True) -> None:
    """Writes the files of AMD's driver for a machine with one CPU and these GPUs; `root` is that of an `AmdProbe`.

    Args:
        root: An empty folder.
        gpus: The GPUs. Their UUIDs are `GPU-00000000000000a0` and so on.
        products: Whether the driver has the names of the products.
    """
    nodes = root / "sys/class/kfd/kfd/topology/nodes"
    _write(nodes / "0/gpu_id", "0")
    _write(nodes / "0/properties", "cpu_cores_count 64\nsimd_count 0")
    for index, gpu in enumerate(gpus):
        node, number, minor = nodes / str(index + 1), 50_000 + index, 128 + index
        device = root / f"sys/class/drm/renderD{minor}/device"
        _write(node / "gpu_id", str(number))
        _write(node / "name", "aldebaran")
        _write(
            node / "properties",
            f"cpu_cores_count 0\nsimd_count 440\nvendor_id 4098\ndevice_id 29704\nunique_id {0xA0 + index}\n"
            f"drm_render_minor {minor}",
        )
        _write(node / "mem_banks/0/properties", f"heap_type 1\nsize_in_bytes {gpu.total}")
        _write(device / "mem_info_vram_total", str(gpu.total))
        _write(device / "mem_info_vram_used", str(sum(gpu.held.values())))
        _write(device / "revision", "0x02")
        _write_measurements(device, gpu)
        if products:
            _write(device / "product_name", gpu.name)
        for pid, held in gpu.held.items():
            _write(root / f"sys/class/kfd/kfd/proc/{pid}/vram_{number}", str(held))


def _write_measurements(device: Path, gpu: FakeGpu) -> None:
    _write(device / "gpu_busy_percent", str(gpu.utilization))
    monitor = device / "hwmon/hwmon3"
    for number, (label, degrees) in enumerate([("edge", gpu.temperature - 5), ("junction", gpu.temperature)], 1):
        _write(monitor / f"temp{number}_label", label)
        _write(monitor / f"temp{number}_input", str(degrees * 1000))
    _write(monitor / "power1_average", str(gpu.power * 10**6))
    _write(monitor / "power1_cap", str(gpu.power_limit * 10**6))
    for name, count in {"pcie_replay_count": 0, **gpu.errors}.items():
        _write(device / name, str(count) if "/" not in name else f"ue: {count}\nce: 0")
    header, size = b"\x78\x00\x01\x03", 0x78  # gpu_metrics_v1_3
    (device / "gpu_metrics").write_bytes(header + bytes(size - 12) + gpu.throttled.to_bytes(8, "little"))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")
