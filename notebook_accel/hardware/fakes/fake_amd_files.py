"""The files of AMD's driver, for a machine that is not there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from notebook_accel.hardware.fakes.fake_gpu import FakeGpu


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
