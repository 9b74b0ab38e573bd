"""Machines that are not there: stand-ins for the libraries and the files of drivers, and for torch's CUDA memory.

They have the interfaces of the real ones, so that detection can be tried on any machine:

    probe = NvmlProbe(lambda: FakeNvml([FakeGpu("NVIDIA H100", 80 << 30)] * 8))
    hardware.detect({}, probe)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from notebook_accel.hardware import Device, Hardware, Listing
from notebook_accel.hardware.tpus import Tpu


@dataclass(frozen=True)
class FakeGpu:
    """One GPU."""

    name: str
    total: int
    """Memory in bytes; 0 if it has none of its own."""
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
    energy: int | None = None
    """Millijoules since the driver was loaded; `None` if it doesn't count them."""
    pci: int = 0
    """The number of its PCI device, which partitions of AMD's GPUs have in common; 0 for one of its own."""
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

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: tuple[FakeGpu, str]) -> int:
        if handle[0].energy is None or handle[1] in self._slices:
            raise self.NVMLError("Not Supported")
        return handle[0].energy

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


def write_rapl_zone(folder: Path, zone: str, name: str, energy: int, wraps_after: int = 262_143_328_850) -> Path:
    """Makes a zone of RAPL in a folder that stands for `/sys/class/powercap`, and returns the file of its counter."""
    path = folder / zone
    path.mkdir(parents=True, exist_ok=True)
    (path / "name").write_text(f"{name}\n")
    (path / "max_energy_range_uj").write_text(f"{wraps_after}\n")
    (path / "energy_uj").write_text(f"{energy}\n")
    return path / "energy_uj"


def nvml(*gpus: FakeGpu) -> Callable[[], FakeNvml]:
    """The `library` of an `NvmlProbe` on a machine with these GPUs."""
    library = FakeNvml(gpus)
    return lambda: library


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

    def change(self, index: int, **fields: Any) -> None:
        """Changes what is measured on a GPU."""
        self._gpus[index] = replace(self._gpus[index], **fields)

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

    def amdsmi_get_energy_count(self, processor_handle: int) -> dict[str, Any]:
        """Counts as MI300 does, which older libraries call `power`."""
        self._check("amdsmi_get_energy_count")
        millijoules = self._gpus[processor_handle].energy
        if millijoules is None:
            raise self.AmdSmiLibraryException(self.NOT_SUPPORTED)
        resolution = 15.25
        return {
            "energy_accumulator": int(millijoules * 1000 / resolution),
            "counter_resolution": resolution,
            "timestamp": 0,
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
            f"drm_render_minor {minor}\ndomain 0\nlocation_id {(index << 28) | (gpu.pci or 0x300 + index)}",
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
        for kind, content in ("label", label), ("input", str(degrees * 1000)):
            _write(monitor / f"temp{number}_{kind}", content)
    _write(monitor / "power1_average", str(gpu.power * 10**6))
    _write(monitor / "power1_cap", str(gpu.power_limit * 10**6))
    for name, count in {"pcie_replay_count": 0, **gpu.errors}.items():
        _write(device / name, str(count) if "/" not in name else f"ue: {count}\nce: 0")
    header, size = b"\x78\x00\x01\x03", 0x78  # gpu_metrics_v1_3
    (device / "gpu_metrics").write_bytes(header + bytes(size - 12) + gpu.throttled.to_bytes(8, "little"))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def write_intel_files(root: Path, gpus: Sequence[FakeGpu], *, number: str = "0xe20b") -> None:
    """Writes the files of the `xe` driver for a machine with these GPUs; `root` is that of an `IntelProbe`.

    Args:
        root: An empty folder.
        gpus: The GPUs, whose names the driver doesn't know.
        number: The number of the product, by which they are named.
    """
    for index, gpu in enumerate(gpus):
        device = root / f"sys/class/drm/renderD{128 + index}/device"
        (device / "tile0").mkdir(parents=True)
        (device / "vendor").write_text("0x8086\n")
        (device / "device").write_text(f"{number}\n")
        (device / "tile0/physical_vram_size_bytes").write_text(f"{gpu.total}\n")


def write_tpu_files(
    root: Path, chips: int, *, number: str = "0x0063", nodes: str = "dev/vfio/{}", listed: bool = True
) -> None:
    """Writes the files of a machine with such chips, beside a network card; `root` is that of a `TpuProbe`.

    Args:
        root: An empty folder.
        chips: The number of chips.
        number: That of their PCI device: 0x0063 is a v5e.
        nodes: The pattern of their device files.
        listed: Whether the PCI bus lists them.
    """
    for index in range(chips + 1):
        device = root / f"sys/bus/pci/devices/0000:00:{index:02}.0"
        if listed or index == chips:
            device.mkdir(parents=True)
            (device / "vendor").write_text("0x1ae0\n")
            (device / "device").write_text("0x0042\n" if index == chips else f"{number}\n")
        if index < chips:
            node = root / nodes.format(index)
            node.parent.mkdir(parents=True, exist_ok=True)
            node.touch()
    (root / "dev/vfio").mkdir(parents=True, exist_ok=True)
    (root / "dev/vfio/vfio").touch()


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


def fake_hardware(
    gpus: Sequence[Device] = (), *, hidden: str = "", mps: bool = False, cores: int = 2, tpu: Tpu | None = None
) -> Hardware:
    """What `detect` would find.

    Args:
        gpus: NVIDIA's.
        hidden: Why ranks can't use these; a GPU is added if there is none.
        mps: Whether there is an Apple GPU.
        cores: The number of cores.
        tpu: The TPU, or its emulation.
    """
    listings = {"cpu": Listing((Device(f"CPU, {cores} core{'s' if cores > 1 else ''}", "cpu", 64 << 30),), ("0",))}
    if gpus or hidden:
        shown = tuple(gpus) or (Device("NVIDIA H100", "GPU-0", 80 << 30),)
        listings["cuda"] = Listing(shown, tuple(str(index) for index in range(len(shown))), hidden)
    if mps:
        listings["mps"] = Listing((Device("Apple GPU", "mps", 64 << 30),), ("0",))
    if tpu is not None and not tpu.emulated:
        chips = tuple(Device(f"TPU {tpu.generation}", f"TPU-{index}", 0) for index in range(tpu.chips))
        listings["tpu"] = Listing(chips, tuple(str(index) for index in range(tpu.chips)), tpu.unusable)
    return Hardware(listings, cores, tpu, "CUDA")
