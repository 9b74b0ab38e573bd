"""The energy that devices have used, from counters of GPUs' drivers and of the kernel (RAPL), without opening a GPU.

A counter is a whole device's: it counts what every process does there. Sources: "NVML API Reference",
`nvmlDeviceGetTotalEnergyConsumption`; "AMD SMI Python API reference", `amdsmi_get_energy_count`; "Power Capping
Framework" of the Linux kernel, whose zones of RAPL are packages and their parts. A package does not include its memory.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from notebook_accel.hardware.accelerators import ACCELERATORS
from notebook_accel.hardware.device_probe import Sensors

Kinds = Mapping[str, Callable[[], Sensors]]
"""Opens the sensors of each kind of GPU."""

KINDS: Kinds = {row.title: row.sensors for row in ACCELERATORS if row.sensors is not None}
POWERCAP = Path("/sys/class/powercap")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PACKAGE_WATTS, _GPU_WATTS = 1000.0, 5000.0
"""No package, and no GPU, uses more."""
_TIMES_LIMIT = 2.0
"""No GPU uses as many times its power limit for seconds. Some of AMD's counters have said so."""
_UPDATE = 1.0
"""Seconds within which a device updates its counter."""
_ROOT_ONLY = "only root may read it, unless an administrator changes its permissions"


@dataclass
class Counter:
    """The joules since a moment, from a counter that only grows, or starts again at 0 after `wraps_after`."""

    read: Callable[[], float]
    """The counter now, in joules; raises `OSError` or `ValueError` if it can't be read."""
    most_watts: float
    """More than its device uses."""
    wraps_after: float = 0.0
    """Joules; 0 if it doesn't wrap."""
    used: float | None = 0.0
    """Joules since `begin`; `None` if they can't be told."""
    _last: float | None = field(default=None, init=False)
    _began: float = field(default=0.0, init=False)
    _at: float = field(default=0.0, init=False)

    def begin(self, now: float) -> None:
        """Counts from now on."""
        self.used, self._last, self._began, self._at = 0.0, self._value(), now, now

    def advance(self, now: float) -> float | None:
        """Reads it, and returns the joules since `begin`; `None` if the count is lost, or if the counter stands still.

        A count is lost if the counter can't be read, may have wrapped twice, or has grown by more than its device can
        use. It stays lost until `begin`, because what it missed would be missing from every later sum.
        """
        value, last, waited = self._value(), self._last, now - self._at
        self._last, self._at = value, now
        wrapped = value is not None and last is not None and value < last
        too_late = self.wraps_after and waited * self.most_watts > self.wraps_after
        if value is None or last is None or self.used is None or too_late or (wrapped and not self.wraps_after):
            self.used = None
            return None
        self.used += value - last + (self.wraps_after if wrapped else 0.0)
        if self.used > self.most_watts * (now - self._began + _UPDATE):
            self.used = None
        return self.used or None

    def _value(self) -> float | None:
        try:
            return self.read()
        except (OSError, ValueError):
            return None


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
        kinds: The kinds of GPUs; tests replace them.
    """

    def __init__(self, gpu: str = "", folder: Path = POWERCAP, kinds: Kinds = KINDS) -> None:
        self._sensors = [open_sensors() for open_sensors in kinds.values()] if gpu else []
        self._gpus = dict(_gpu_counters(gpu, self._sensors))
        self._packages = dict(_package_counters(folder))

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
        """Joules since `begin`: of whole GPUs, and of packages, by names that no other machine has."""
        now = time.monotonic()
        gpus, packages = (
            {name: counter.advance(now) for name, counter in each.items()} for each in (self._gpus, self._packages)
        )
        return _known(gpus), _known(packages)

    def close(self) -> None:
        """Releases the drivers' libraries."""
        for sensors in self._sensors:
            sensors.close()


def _gpu_counters(gpu: str, opened: Sequence[Sensors]) -> Iterator[tuple[str, Counter]]:
    """The counter of the whole GPU that `gpu` is or belongs to, if its driver has one."""
    for sensors in opened:
        if reading := sensors.read().get(gpu):
            with contextlib.suppress(OSError):
                name, _ = sensors.energy(gpu)
                most = _TIMES_LIMIT * reading.power_limit if reading.power_limit else _GPU_WATTS
                yield name, Counter(partial(_joules, sensors, gpu), most)


def _joules(sensors: Sensors, gpu: str) -> float:
    return sensors.energy(gpu)[1]


def _package_counters(folder: Path) -> Iterator[tuple[str, Counter]]:
    """The counters of packages that can be read."""
    machine = _machine()
    for zone in zones(folder):
        with contextlib.suppress(OSError, ValueError):
            zone.read()
            yield f"{machine}/{zone.folder.name}", Counter(zone.read, _PACKAGE_WATTS, zone.wraps_after)


def availability(folder: Path = POWERCAP, kinds: Kinds = KINDS) -> dict[str, str]:
    """What can be measured here, and why the rest can't, for reports: by kind of device."""
    found = {}
    for title, open_sensors in kinds.items():
        sensors = open_sensors()
        if uuids := list(sensors.read()):
            found[f"energy of {title}"] = _of_gpus(sensors, uuids)
        sensors.close()
    found["energy of CPUs"] = _of_packages(folder)
    return found


def _of_gpus(sensors: Sensors, uuids: Sequence[str]) -> str:
    reasons = []
    for uuid in uuids:
        try:
            sensors.energy(uuid)
        except OSError as error:
            reasons.append(str(error))
    return f"not measured: {'; '.join(dict.fromkeys(reasons))}" if reasons else "measured"


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
