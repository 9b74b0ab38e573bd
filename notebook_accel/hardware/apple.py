"""Finds Apple's GPU, which is part of the processor and shares its memory."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field

from notebook_accel.hardware.device_probe import Device, DeviceUse

MPS = "mps"
"""What identifies the GPU. Each of these machines has one."""


@dataclass(frozen=True)
class AppleProbe:
    """Asks for the system and the processor; tests replace both."""

    system: str = field(default_factory=platform.system)
    machine: str = field(default_factory=platform.machine)
    vendor: str = "Apple"

    def devices(self) -> Sequence[Device]:
        if (self.system, self.machine) != ("Darwin", "arm64"):
            return ()
        import psutil  # slow to import, but only launches need it

        return (Device("Apple GPU", MPS, psutil.virtual_memory().total),)

    def use(self) -> dict[str, DeviceUse]:
        return {}  # its memory is the CPU's
