"""Machines that are not there: stand-ins for NVIDIA's library and for the files of AMD's driver.

They have the interfaces of the real ones, so that detection can be tried on any machine:

    probe = NvmlProbe(lambda: FakeNvml([FakeGpu("NVIDIA H100", 80 << 30)] * 8))
    hardware.detect({}, probe)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace


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


class FakeNvml:
    """Those functions of `pynvml` that detection calls. A handle is the GPU and its UUID."""

    class NVMLError(Exception):
        """As in `pynvml`."""

    def __init__(self, gpus: Sequence[FakeGpu]) -> None:
        self._gpus = [(gpu, f"GPU-{index:08x}-0000") for index, gpu in enumerate(gpus)]
        self._open = 0

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
        return gpu.slices[index], f"MIG-{uuid[4:12]}-{index:04x}"


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
        if products:
            _write(device / "product_name", gpu.name)
        for pid, held in gpu.held.items():
            _write(root / f"sys/class/kfd/kfd/proc/{pid}/vram_{number}", str(held))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")
