"""Lists Intel GPUs through the files of Linux's kernel driver. Ranks don't run on them: see `docs/hardware.md`.

Source: `xe_tile_sysfs.c` of Linux's `xe` driver; its older one, `i915`, doesn't report the size of the memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from notebook_accel.hardware.device_probe import Device, DeviceUse, Listing

_VENDOR = "0x8086"


@dataclass(frozen=True)
class IntelProbe:
    """Lists those in processors, too."""

    root: Path = Path("/")
    """The folder that contains `sys`; tests replace it."""
    vendor: str = "Intel"

    def devices(self) -> Sequence[Device]:
        found = []
        for folder in sorted(self.root.glob("sys/class/drm/renderD*/device")):
            with contextlib.suppress(OSError, ValueError):
                if (folder / "vendor").read_text().strip() == _VENDOR:
                    name = f"Intel GPU {(folder / 'device').read_text().strip()}"
                    tiles = folder.glob("tile*/physical_vram_size_bytes")
                    found.append(Device(name, folder.parent.name, sum(int(file.read_text()) for file in tiles)))
        return tuple(found)

    def use(self) -> dict[str, DeviceUse]:
        return {}


def unsupported(gpus: Sequence[Device], environ: Mapping[str, str]) -> Listing:
    """Says that ranks can't use them."""
    return Listing(tuple(gpus), unusable="notebook-accel has no support for Intel's")
