"""What is known of a device, and the interfaces by which those of one kind are listed and measured."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

TEMPERATURE, POWER_BRAKE, HARDWARE, POWER_LIMIT = "temperature", "power brake", "hardware", "power limit"
"""Why a GPU may run below its clock rate. The last one is normal: it is how drivers hold a GPU to its power limit."""

NOT_COUNTED = "the driver reports none for {}"
"""Why there is no energy of a GPU, by its UUID."""


@dataclass(frozen=True)
class Device:
    """One GPU, one slice of an NVIDIA GPU in MIG mode, one TPU chip, or the CPU."""

    name: str
    uuid: str
    """What identifies it in any process of this machine."""
    total: int
    """Memory in bytes; 0 if unknown."""
    access: str = "shared"
    """`shared`; `exclusive` if the driver admits one process at a time; `prohibited` if it admits none."""
    slices: tuple[Device, ...] = ()
    """The slices of a GPU in MIG mode, in the driver's order."""


@dataclass(frozen=True)
class DeviceUse:
    """What a device's memory is used for now."""

    used: int
    """Bytes."""
    holders: Mapping[int, int] = field(default_factory=dict)
    """Bytes held by each process, by its ID; 0 if the driver does not report them."""


@dataclass(frozen=True)
class Listing:
    """The devices of one kind, as a process with some environment sees them."""

    devices: tuple[Device, ...] = ()
    """Those that ranks could use, in torch's order; if they can use none, those of the machine."""
    ids: tuple[str, ...] = ()
    """How the kind's environment variable names each of them."""
    unusable: str = ""
    """Why ranks can use none of them, or empty."""

    @property
    def usable(self) -> tuple[Device, ...]:
        return () if self.unusable else self.devices


class Probe(Protocol):
    """Lists the devices of one vendor without opening them. `FixedProbe` is one without a machine."""

    @property
    def vendor(self) -> str: ...

    def devices(self) -> Sequence[Device]:
        """All of the machine, in the driver's order."""
        ...

    def use(self) -> dict[str, DeviceUse]:
        """The use of the memory of each device now, by its UUID; of those for which it is reported."""
        ...


@dataclass(frozen=True)
class FixedProbe:
    """A machine with the given GPUs, for plans and tests on machines without GPUs."""

    listed: Sequence[Device]
    uses: Mapping[str, DeviceUse] = field(default_factory=dict)
    vendor: str = "NVIDIA"

    def devices(self) -> Sequence[Device]:
        return self.listed

    def use(self) -> dict[str, DeviceUse]:
        return dict(self.uses)


def query(library: Any, error: type[Exception], function: str, *arguments: Any) -> Any:
    """What a library's function returns; `None` if this GPU, driver, or version of the library doesn't have it."""
    found = getattr(library, function, None)
    if found is not None:
        with contextlib.suppress(error):
            return found(*arguments)
    return None


@dataclass(frozen=True)
class GpuReading:
    """One GPU at one moment. What the driver doesn't report is `None`."""

    name: str
    utilization: float | None = None
    """Percent of the last interval of the driver, up to a second, in which a kernel ran."""
    memory_used: int | None = None
    """Bytes that all processes together hold."""
    memory_total: int | None = None
    """Bytes."""
    temperature: float | None = None
    """Degrees Celsius."""
    power: float | None = None
    """Watts."""
    power_limit: float | None = None
    """Watts."""
    throttled: tuple[str, ...] = ()
    """Why its clock rate is reduced now: of the constants above."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Errors since the driver was loaded, by what they are."""


class Sensors(Protocol):
    """The measurements of all GPUs of one vendor. Reading them opens no GPU; the driver measures by itself."""

    def read(self) -> dict[str, GpuReading]:
        """Reads every GPU, by its UUID; slices of a GPU have their own. Takes milliseconds."""
        ...

    def energy(self, uuid: str) -> tuple[str, float]:
        """The joules that a GPU has used since some moment, and a name of what they are of that no other machine has.

        A slice or a partition has the energy of its whole GPU.

        Args:
            uuid: One that `read` returns.

        Raises:
            OSError: They can't be read; it says why.
        """
        ...

    def close(self) -> None:
        """Releases the driver's library."""
        ...
