"""AMD's GPUs: which there are, how much of their memory is in use, and what they measure.

They are listed through the files of Linux's kernel driver, which need no library and open no device. Sources: the
kernel's `amdgpu` and `amdkfd` drivers, `Documentation/gpu/amdgpu/` and `drivers/gpu/drm/amd/amdkfd/kfd_topology.c` of
Linux 6.12; libdrm's table of product names. What they measure is read through amdsmi, the management library of ROCm,
and from files. Sources: the AMD SMI Python API reference, and the interface of amdsmi 7.0, where `"N/A"` is not
available; `thermal.rst` and `ras.rst` of that documentation, and `gpu_metrics_v1_3` in
`drivers/gpu/drm/amd/include/kgd_pp_interface.h`, the bits of whose throttle status are in `amdgpu_smu.h`.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from notebook_accel.hardware.device_probe import (
    NOT_COUNTED,
    POWER_LIMIT,
    TEMPERATURE,
    Device,
    DeviceUse,
    GpuReading,
    query,
)

_NODES = "sys/class/kfd/kfd/topology/nodes"
_PROCESSES = "sys/class/kfd/kfd/proc"
_PRODUCTS = "usr/share/libdrm/amdgpu.ids"
_LIBRARY = "libamd_smi.so"
_SMI_SENSORS = ("HOTSPOT", "EDGE")
"""Where the temperature is measured, the hottest point first."""
_SENSORS = ("junction", "edge")
"""The names of temperatures, the hottest point first."""
_UNCORRECTED = re.compile(r"^ue: (\d+)$", re.MULTILINE)
_WITH_STATUS = (1, 3)
"""The version of `gpu_metrics` that ends with a throttle status that is the same for all GPUs."""
_UNKNOWN = 2**64 - 1
_NO_LIBRARY = "amdsmi, the management library of ROCm, is not installed for this Python, or finds no driver"
_PCI_DEVICE = (1 << 28) - 1
"""The bits of a node's location that its partitions share. Those above number them."""
_POWER_BITS, _TEMPERATURE_BITS = (1 << 24) - 1, ((1 << 16) - 1) << 32


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
        unique, location = about.get("unique_id", 0), about.get("location_id", 0) & _PCI_DEVICE
        uuid = f"GPU-{unique:016x}" if unique else f"GPU-{number}"
        card = f"{about.get('domain', 0):04x}:{location:x}" if location else uuid
        return Node(number, device, Device(name, uuid, total), f"{os.uname().nodename}/{card}")

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
    card: str
    """What all partitions of a GPU have in common, and no other GPU of any machine."""


def _properties(path: Path) -> dict[str, int]:
    """A file of lines that each hold a name and a number."""
    pairs = [line.split() for line in path.read_text().splitlines()]
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def smi_module() -> Any:
    """The library as a module; `None` if it is not installed."""
    spec = importlib.util.find_spec("amdsmi")
    if spec is None or not _has_library(Path(spec.origin or "").parent):
        return None
    try:
        import amdsmi
    except Exception:  # of another version than its library, it can raise anything
        return None
    return amdsmi


def _has_library(package: Path) -> bool:
    """Whether the module would find its library; without it, the module prints lines as it is imported."""
    rocm = Path(os.environ.get("ROCM_HOME") or os.environ.get("ROCM_PATH") or "/opt/rocm")
    if any((folder / _LIBRARY).is_file() for folder in (rocm / "lib", package)):
        return True
    with contextlib.suppress(OSError):
        ctypes.CDLL(_LIBRARY)
        return True
    return False


class AmdSmi:
    """Queries the AMD driver; holds the library open until `close`."""

    def __init__(self, library: Callable[[], Any] = smi_module) -> None:
        self._smi = library()
        self._handles: dict[str, Any] = {}
        """By the number by which the kernel's driver knows a GPU, or a partition of one."""
        if self._smi is None:
            return
        try:
            self._smi.amdsmi_init()
        except self._smi.AmdSmiException:  # no driver
            self._smi = None
            return
        for handle in self._query("amdsmi_get_processor_handles") or ():
            about = self._query("amdsmi_get_gpu_kfd_info", handle)
            if about is not None:  # ROCm 6.2 and older can't tell; the driver's files serve then
                self._handles[str(about["kfd_id"])] = handle

    @property
    def is_open(self) -> bool:
        """Whether there is a library and a driver."""
        return self._smi is not None

    def read(self, number: str) -> dict[str, Any]:
        """Fields of `GpuReading` that are measured on a GPU; none if the library doesn't list it.

        Args:
            number: What the kernel's driver calls the GPU.
        """
        handle = self._handles.get(number)
        if handle is None:
            return {}
        use, power = self._query("amdsmi_get_gpu_activity", handle), self._query("amdsmi_get_power_info", handle) or {}
        limit = (self._query("amdsmi_get_power_cap_info", handle) or {}).get("power_cap")
        vram = self._smi.AmdSmiMemoryType.VRAM
        found = {
            "utilization": (use or {}).get("gfx_activity"),
            "memory_used": self._query("amdsmi_get_gpu_memory_usage", handle, vram),
            "memory_total": self._query("amdsmi_get_gpu_memory_total", handle, vram),
            "temperature": self._temperature(handle),
            "power": next(
                filter(_is_number, (power.get(f"{kind}_socket_power") for kind in ("current", "average"))), None
            ),
            "power_limit": limit / 1e6 if _is_number(limit) and limit else None,
        }
        return {name: value for name, value in found.items() if _is_number(value)}

    def joules(self, number: str) -> float | None:
        """What a GPU has used since it was last reset; `None` if the library doesn't say. The argument is as above."""
        handle = self._handles.get(number)
        found = None if handle is None else self._query("amdsmi_get_energy_count", handle)
        if found is None:
            return None
        count = found.get("energy_accumulator", found.get("power"))  # the name before ROCm 6.4
        microjoules = found.get("counter_resolution")
        if not _is_number(count) or not _is_number(microjoules) or count == _UNKNOWN:
            return None
        return float(count * microjoules / 1e6)

    def close(self) -> None:
        """Releases the library."""
        self._handles = {}
        if self._smi is not None:
            with contextlib.suppress(self._smi.AmdSmiException):
                self._smi.amdsmi_shut_down()
        self._smi = None

    def _temperature(self, handle: Any) -> int | None:
        """Degrees Celsius, at the hottest point that is measured."""
        types, current = self._smi.AmdSmiTemperatureType, self._smi.AmdSmiTemperatureMetric.CURRENT
        found = (self._query("amdsmi_get_temp_metric", handle, getattr(types, name), current) for name in _SMI_SENSORS)
        return next((degrees for degrees in found if degrees), None)

    def _query(self, function: str, *arguments: Any) -> Any:
        return query(self._smi, self._smi.AmdSmiException, function, *arguments)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def read_files(node: Node) -> GpuReading:
    """Reads a few small files of a GPU."""
    device = node.device
    monitor = next(iter(sorted(device.glob("hwmon/hwmon*"))), device / "hwmon")
    power = _number(monitor / "power1_average")
    power = _number(monitor / "power1_input") if power is None else power
    limit, temperature = _number(monitor / "power1_cap"), _temperature(monitor)
    return GpuReading(
        node.gpu.name,
        utilization=_number(device / "gpu_busy_percent"),
        memory_used=_number(device / "mem_info_vram_used"),
        memory_total=node.gpu.total or None,
        temperature=None if temperature is None else temperature / 1000,
        power=None if power is None else power / 1e6,
        power_limit=None if limit is None else limit / 1e6,
        throttled=tuple(_throttled(device)),
        errors=_errors(device),
    )


def _temperature(monitor: Path) -> int | None:
    """Thousandths of a degree, at the hottest point that is measured."""
    by_label = {}
    for file in monitor.glob("temp*_label"):
        with contextlib.suppress(OSError):
            by_label[file.read_text().strip()] = file.with_name(file.name.replace("_label", "_input"))
    named = next((by_label[label] for label in _SENSORS if label in by_label), monitor / "temp1_input")
    return _number(named)


def _throttled(device: Path) -> Iterator[str]:
    with contextlib.suppress(OSError, IndexError):
        metrics = (device / "gpu_metrics").read_bytes()
        size = int.from_bytes(metrics[:2], "little")
        status = int.from_bytes(metrics[size - 8 : size], "little")
        if (metrics[2], metrics[3]) != _WITH_STATUS or status == _UNKNOWN:
            return
        if status & _TEMPERATURE_BITS:
            yield TEMPERATURE
        if status & _POWER_BITS:
            yield POWER_LIMIT


def _errors(device: Path) -> dict[str, int]:
    found = {}
    replays = _number(device / "pcie_replay_count")
    if replays is not None:
        found["PCIe replays"] = replays
    for file in device.glob("ras/*_err_count"):
        with contextlib.suppress(OSError):
            if match := _UNCORRECTED.search(file.read_text()):
                name = "uncorrected memory errors" if file.name.startswith("umc") else "uncorrected errors"
                found[name] = found.get(name, 0) + int(match[1])
    return found


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


class AmdSensors:
    """Asks both for each GPU. Only the files say why a clock rate is reduced: amdsmi waits 100 ms for that.

    Args:
        root: The folder that contains `sys` and `usr`; tests replace it.
        library: Returns `amdsmi`, or a stand-in such as `FakeAmdSmi`; `None` if there is none.
    """

    def __init__(self, root: Path = Path("/"), library: Callable[[], Any] = smi_module) -> None:
        self._nodes = list(AmdProbe(root).nodes())
        self._smi = AmdSmi(library if self._nodes else lambda: None)

    def read(self) -> dict[str, GpuReading]:
        return {node.gpu.uuid: replace(read_files(node), **self._smi.read(node.number)) for node in self._nodes}

    def energy(self, uuid: str) -> tuple[str, float]:
        node = next(node for node in self._nodes if node.gpu.uuid == uuid)
        joules = self._smi.joules(node.number)
        if joules is None:
            raise OSError(NOT_COUNTED.format(uuid) if self._smi.is_open else _NO_LIBRARY)
        return node.card, joules

    def close(self) -> None:
        self._nodes = []
        self._smi.close()
