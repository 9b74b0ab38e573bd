"""Lists AMD GPUs through the files of Linux's kernel driver, which needs no library and opens no device.

Sources: the kernel's `amdgpu` and `amdkfd` drivers, `Documentation/gpu/amdgpu/` and
`drivers/gpu/drm/amd/amdkfd/kfd_topology.c` of Linux 6.12; libdrm's table of product names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from notebook_accel.hardware.device_probe import Device, DeviceUse

_NODES = "sys/class/kfd/kfd/topology/nodes"
_PROCESSES = "sys/class/kfd/kfd/proc"
_PRODUCTS = "usr/share/libdrm/amdgpu.ids"


@dataclass(frozen=True)
class AmdProbe:
    """Reads the topology that ROCm's runtime reads, in its order."""

    root: Path = Path("/")
    """The folder that contains `sys` and `usr`; tests replace it."""
    vendor: str = "AMD"

    def devices(self) -> Sequence[Device]:
        return tuple(node.gpu for node in self.nodes())

    def use(self) -> dict[str, DeviceUse]:
        found = {}
        for node in self.nodes():
            holders = {}
            for file in self.root.glob(f"{_PROCESSES}/*/vram_{node.number}"):
                with contextlib.suppress(OSError, ValueError):  # the process has ended
                    if held := int(file.read_text()):
                        holders[int(file.parent.name)] = held
            with contextlib.suppress(OSError, ValueError):
                used = int((node.device / "mem_info_vram_used").read_text())
                found[node.gpu.uuid] = DeviceUse(used, holders)
        return found

    def nodes(self) -> Iterator[Node]:
        """Each GPU of this machine, in the order of ROCm's runtime."""
        folders = [path for path in self.root.glob(f"{_NODES}/*") if path.name.isdecimal()]
        for folder in sorted(folders, key=lambda path: int(path.name)):
            # A container may not read the nodes of GPUs that it was not given.
            with contextlib.suppress(OSError, ValueError):
                number = (folder / "gpu_id").read_text().strip()
                if number not in ("", "0"):  # 0 is a CPU
                    yield self._node(folder, number)

    def _node(self, folder: Path, number: str) -> Node:
        about = _properties(folder / "properties")
        device = self.root / f"sys/class/drm/renderD{about.get('drm_render_minor', 0)}/device"
        total = _number(device / "mem_info_vram_total") or sum(
            _properties(bank / "properties").get("size_in_bytes", 0) for bank in folder.glob("mem_banks/*")
        )
        name = self._product(about.get("device_id", 0), device) or f"AMD {(folder / 'name').read_text().strip()}"
        unique = about.get("unique_id", 0)
        return Node(number, device, Device(name, f"GPU-{unique:016x}" if unique else f"GPU-{number}", total))

    def _product(self, device_id: int, device: Path) -> str:
        """The product's name: the card's own, or from libdrm's table; empty if neither has one."""
        with contextlib.suppress(OSError):
            if name := (device / "product_name").read_text().strip():
                return name
        with contextlib.suppress(OSError, ValueError):
            revision = int((device / "revision").read_text(), 16)
            for line in (self.root / _PRODUCTS).read_text().splitlines():
                fields = [field.strip() for field in line.split(",", 2)]
                if len(fields) == 3 and (fields[0].upper(), fields[1].upper()) == (
                    f"{device_id:04X}",
                    f"{revision:02X}",
                ):
                    return fields[2]
        return ""


@dataclass(frozen=True)
class Node:
    """One GPU in the files of the driver."""

    number: str
    """What the driver calls the GPU."""
    device: Path
    """Its folder among the PCI devices."""
    gpu: Device


def _properties(path: Path) -> dict[str, int]:
    """A file of lines that each hold a name and a number."""
    pairs = [line.split() for line in path.read_text().splitlines()]
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0
