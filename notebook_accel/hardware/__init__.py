"""Detects the devices of this machine without opening one, and without importing torch.

    accelerators.py  ─ `ACCELERATORS`, the table of all kinds of devices, from which everything that follows is reached
    device_probe.py  ─ what is known of a device, and the interfaces by which a kind is listed and measured
    nvidia.py, amd.py, intel.py, apple.py, tpus.py, cores.py ─ list the devices of each kind, and measure GPUs
    visible_gpus.py  ─ those GPUs that a process can use, by `CUDA_VISIBLE_DEVICES` and its like
    torch_build.py   ─ the platform that the installed torch is built for
    process_meter.py ─ the CPU time and memory of processes
    host_meter.py    ─ the CPU, memory, and disk of this machine
    energy.py        ─ the energy that a GPU and the processors use

GPUs are numbered as torch would number them here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from notebook_accel.hardware import cores, torch_build, tpus, visible_gpus
from notebook_accel.hardware.accelerators import ACCELERATORS, Accelerator
from notebook_accel.hardware.device_probe import Device, DeviceUse, FixedProbe, GpuReading, Listing, Probe, Sensors
from notebook_accel.hardware.tpus import Tpu

__all__ = [
    "ACCELERATORS",
    "DEFAULT_CPU_RANKS",
    "Accelerator",
    "Device",
    "DeviceUse",
    "FixedProbe",
    "GpuReading",
    "Hardware",
    "Listing",
    "Probe",
    "Sensors",
    "detect",
    "memory_use",
    "open_sensors",
]

DEFAULT_CPU_RANKS = 4
"""The most CPU ranks that are started by default."""


@dataclass(frozen=True)
class Hardware:
    """The devices that ranks could run on."""

    listings: Mapping[str, Listing]
    """What this machine has of each row of `ACCELERATORS`, by its name; rows of which it has none are left out."""
    cores: int
    """Physical cores that this process may use."""
    tpu: Tpu | None = None
    """The TPU, or its emulation."""
    built_for: str = ""
    """What the installed torch is built for, as in `torch_build.platform()`."""
    exclusive_holders: Mapping[int, int] = field(default_factory=dict)
    """The process that holds a GPU which admits only one, by the GPU's index."""

    @property
    def kind(self) -> str:
        """The kind of device that is used by default: `tpu`, `cuda`, `mps` or `cpu`."""
        return next((row.device for row in ACCELERATORS if row.device and self._of(row).usable), "cpu")

    @property
    def gpus(self) -> tuple[Device, ...]:
        """The GPUs that torch could use here as `cuda` devices, in torch's order."""
        return self._gpus.usable

    @property
    def gpu_ids(self) -> tuple[str, ...]:
        """How `gpu_variable` names each of them."""
        return self._gpus.ids

    @property
    def hidden_gpus(self) -> str:
        """Why GPUs of this machine cannot be used, or empty. Intel's count for a torch that is built for them."""
        rows = [row for row in ACCELERATORS if row.built_for and row.name in self.listings]
        fitting = [row for row in rows if row.built_for == self.built_for]
        return next((self._of(row).unusable for row in fitting or [row for row in rows if row.device]), "")

    @property
    def gpu_variable(self) -> str:
        """The environment variable that chooses the GPUs of a rank."""
        return next((row.variable for row in self._gpu_rows), visible_gpus.CUDA)

    @property
    def mps(self) -> bool:
        """An Apple GPU that torch could use."""
        return bool(self.listings.get("mps", Listing()).usable)

    def without(self, name: str, why: str) -> Hardware:
        """The same, except that ranks can't use the devices of a row."""
        listing = self.listings.get(name, Listing())
        listings = {**self.listings, name: replace(listing, unusable=listing.unusable or why)}
        tpu = self.tpu
        if name == "tpu" and tpu is not None:
            tpu = replace(tpu, unusable=tpu.unusable or why)
        return replace(self, listings=listings, tpu=tpu)

    def _of(self, row: Accelerator) -> Listing:
        return self.listings.get(row.name, Listing())

    @property
    def _gpu_rows(self) -> list[Accelerator]:
        """The row that torch's `cuda` devices are of, if there is one."""
        return [
            row
            for row in ACCELERATORS
            if row.device == "cuda" and row.built_for == self.built_for and row.name in self.listings
        ]

    @property
    def _gpus(self) -> Listing:
        return next((self._of(row) for row in self._gpu_rows), Listing())


def detect(environ: Mapping[str, str] | None = None, probe: Probe | None = None) -> Hardware:
    """Detects the devices that a process with the given environment could use.

    Args:
        environ: The environment; by default that of this process.
        probe: Lists the GPUs, which the installed torch is then taken to be built for.
    """
    environ = os.environ if environ is None else environ
    built_for = torch_build.platform()
    if probe is not None:
        built_for = next((row.built_for for row in ACCELERATORS if row.probe().vendor == probe.vendor), "")
    listings: dict[str, Listing] = {}
    holders: Mapping[int, int] = {}
    for row in ACCELERATORS:
        if probe is not None and row.built_for not in ("", built_for):
            continue
        source = probe if probe is not None and row.built_for else row.probe()
        devices = source.devices()
        if not devices:
            continue
        if row.built_for not in ("", built_for):
            why = f"the installed torch is built without {row.built_for}"
            listings[row.name] = Listing(tuple(devices), unusable=why)
            continue
        listings[row.name] = row.narrow(devices, environ)
        if row.variable:
            holders = _exclusive_holders(listings[row.name].usable, source)
    return Hardware(listings, cores.usable(), tpus.detect(environ), built_for, holders)


def _exclusive_holders(gpus: Sequence[Device], probe: Probe) -> dict[int, int]:
    """Who holds each GPU that admits one process, by the GPU's index."""
    if not any(gpu.access == "exclusive" for gpu in gpus):
        return {}
    uses = probe.use()
    held = {index: uses[gpu.uuid].holders for index, gpu in enumerate(gpus) if gpu.uuid in uses}
    return {index: next(iter(pids)) for index, pids in held.items() if pids and gpus[index].access == "exclusive"}


def memory_use() -> dict[str, DeviceUse]:
    """The use of the memory of each device now, by its UUID."""
    return {uuid: use for row in ACCELERATORS for uuid, use in row.probe().use().items()}


def open_sensors() -> list[Sensors]:
    """The sensors of the devices of this machine, for each kind that has some; close them."""
    return [row.sensors() for row in ACCELERATORS if row.sensors is not None]
