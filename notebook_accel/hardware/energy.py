"""The energy that devices have used, from counters of NVIDIA's driver and of the kernel (RAPL), without opening a GPU.

A counter is a whole device's: it counts what every process does there. Source: "NVML API Reference",
`nvmlDeviceGetTotalEnergyConsumption`; "Power Capping Framework" of the Linux kernel, whose zones of RAPL are packages
and their parts. A package does not include its memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from notebook_accel.hardware import nvidia

POWERCAP = Path("/sys/class/powercap")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MOST_WATTS = 1000.0
"""No package uses more. A counter that has not been read for as long as this takes to wrap may have wrapped twice."""
_ROOT_ONLY = "only root may read it, unless an administrator changes its permissions"


@dataclass
class Counter:
    """The joules since a moment, from a counter that only grows, or starts again at 0 after `wraps_after`."""

    read: Callable[[], float | None]
    """The counter now, in joules; `None` if it can't be read."""
    wraps_after: float = 0.0
    """Joules; 0 if it doesn't wrap."""
    used: float | None = 0.0
    """Joules since `begin`; `None` if they can't be told."""
    _last: float | None = field(default=None, init=False)
    _at: float = field(default=0.0, init=False)

    def begin(self, now: float) -> None:
        """Counts from now on."""
        self.used, self._last, self._at = 0.0, self.read(), now

    def advance(self, now: float) -> float | None:
        """Reads it, and returns the joules since `begin`; `None` if the count is lost, or if the counter stands still.

        A counter that is lost stays so until `begin`, because what it missed would be missing from every later sum.
        """
        value, last, waited = self.read(), self._last, now - self._at
        self._last, self._at = value, now
        wrapped = value is not None and last is not None and value < last
        too_late = self.wraps_after and waited * _MOST_WATTS > self.wraps_after
        if value is None or last is None or self.used is None or too_late or (wrapped and not self.wraps_after):
            self.used = None
            return None
        self.used += value - last + (self.wraps_after if wrapped else 0.0)
        return self.used or None


@dataclass(frozen=True)
class Zone:
    """A package of the machine's processors, or the memory at one."""

    name: str
    """What the kernel calls it: `package-0` or `dram`."""
    folder: Path
    wraps_after: float
    """Joules."""

    def read(self) -> float:
        """Its counter, in joules.

        Raises:
            OSError: It can't be read, most often because only root may.
            ValueError: It is not a number.
        """
        return int((self.folder / "energy_uj").read_text()) / 1e6

    def read_or_none(self) -> float | None:
        """The same; `None` if it can't be read."""
        try:
            return self.read()
        except (OSError, ValueError):
            return None


def zones(folder: Path = POWERCAP) -> Iterator[Zone]:
    """The packages of the machine, and the memory at each. Other zones are parts of these, or contain them."""
    for path in sorted(folder.glob("intel-rapl:*")):  # also of AMD's processors
        try:
            name = (path / "name").read_text().strip()
            wraps_after = int((path / "max_energy_range_uj").read_text()) / 1e6
        except (OSError, ValueError):
            continue
        if name.startswith("package") or name == "dram":
            yield Zone(name, path, wraps_after)


class EnergyMeter:
    """Measures the packages of this machine, and one GPU.

    Args:
        gpu: The UUID of the GPU, or of a slice of it; empty for none.
        folder: The folder of the kernel's power capping; tests replace it.
        library: As in `NvmlSensors`.
    """

    def __init__(self, gpu: str = "", folder: Path = POWERCAP, library: Callable[[], Any] = nvidia.installed) -> None:
        self._sensors = nvidia.NvmlSensors(library) if gpu else None
        whole = None if self._sensors is None else self._sensors.energy(gpu)
        self._gpus = {} if whole is None else {whole[0]: Counter(lambda: self._gpu_joules(gpu))}
        machine = _machine()
        self._packages = {
            f"{machine}/{zone.folder.name}": Counter(zone.read_or_none, zone.wraps_after)
            for zone in zones(folder)
            if zone.read_or_none() is not None
        }

    @property
    def counts(self) -> bool:
        """Whether there is anything that it can measure."""
        return bool(self._gpus or self._packages)

    def begin(self) -> None:
        """Measures from now on."""
        now = time.monotonic()
        for counter in (*self._gpus.values(), *self._packages.values()):
            counter.begin(now)

    def read(self) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Joules since `begin`: of whole GPUs, by UUID, and of packages, by names that no other machine has."""
        now = time.monotonic()
        gpus, packages = (
            {name: counter.advance(now) for name, counter in each.items()} for each in (self._gpus, self._packages)
        )
        return _known(gpus), _known(packages)

    def close(self) -> None:
        """Releases the driver's library."""
        if self._sensors is not None:
            self._sensors.close()

    def _gpu_joules(self, gpu: str) -> float | None:
        found = None if self._sensors is None else self._sensors.energy(gpu)
        return None if found is None else found[1]


def availability(folder: Path = POWERCAP, library: Callable[[], Any] = nvidia.installed) -> dict[str, str]:
    """What can be measured here, and why the rest can't, for reports: by kind of device."""
    found = {}
    sensors = nvidia.NvmlSensors(library)
    uuids = list(sensors.read())
    if uuids:
        unread = [uuid for uuid in uuids if sensors.energy(uuid) is None]
        found["energy of NVIDIA GPUs"] = (
            "measured" if not unread else f"not measured: the driver reports none for {', '.join(unread)}"
        )
    sensors.close()
    found["energy of CPUs"] = _of_packages(folder)
    return found


def _of_packages(folder: Path) -> str:
    listed = list(zones(folder))
    if not listed:
        return f"not measured: the kernel shows no counters in {folder}, as in most containers and virtual machines"
    for zone in listed:
        try:
            zone.read()
        except PermissionError:
            return f"not measured: {zone.folder / 'energy_uj'}: {_ROOT_ONLY}"
        except (OSError, ValueError) as error:
            return f"not measured: {zone.folder / 'energy_uj'}: {error}"
    return f"measured: {', '.join(dict.fromkeys(zone.name for zone in listed))}"


def _known(counters: Mapping[str, float | None]) -> dict[str, float]:
    return {name: round(joules, 3) for name, joules in counters.items() if joules is not None}


def _machine() -> str:
    """What tells this machine from all others; its containers share it, and its packages."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
