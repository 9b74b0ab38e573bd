"""What is known of a GPU, and the interface by which a vendor's GPUs are listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Gpu:
    """One GPU, or one slice of an NVIDIA GPU in MIG mode."""

    name: str
    uuid: str
    total: int
    """Memory in bytes; 0 if unknown."""
    access: str = "shared"
    """`shared`; `exclusive` if the driver admits one process at a time; `prohibited` if it admits none."""
    slices: tuple[Gpu, ...] = ()
    """The slices of a GPU in MIG mode, in the driver's order."""


@dataclass(frozen=True)
class GpuUse:
    """What a GPU's memory is used for now."""

    used: int
    """Bytes."""
    holders: Mapping[int, int] = field(default_factory=dict)
    """Bytes held by each process, by its ID; 0 if the driver does not report them."""


class Probe(Protocol):
    """Lists the GPUs of one vendor without opening them. `FixedProbe` is one without a machine."""

    @property
    def vendor(self) -> str: ...

    def gpus(self) -> Sequence[Gpu]:
        """All GPUs of the machine, in the driver's order."""
        ...

    def use(self) -> dict[str, GpuUse]:
        """The use of each GPU now, by its UUID."""
        ...


@dataclass(frozen=True)
class FixedProbe:
    """A machine with the given GPUs, for plans and tests on machines without GPUs."""

    listed: Sequence[Gpu]
    uses: Mapping[str, GpuUse] = field(default_factory=dict)
    vendor: str = "NVIDIA"

    def gpus(self) -> Sequence[Gpu]:
        return self.listed

    def use(self) -> dict[str, GpuUse]:
        return dict(self.uses)
