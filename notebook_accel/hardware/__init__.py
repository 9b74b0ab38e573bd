"""Detects the devices of this machine without opening one, and without importing torch.

    gpus.py          ─ what is known of a GPU, and the interface of a vendor's probe
    nvidia.py        ─ NVIDIA's GPUs, listed by NVML
    amd.py           ─ AMD's GPUs, listed by the kernel's files
    gpu_readings.py  ─ what is measured on a GPU, and the interface of a vendor's sensors
    nvidia_sensors.py, amd_sensors.py ─ the sensors of each; AMD's ask amd_smi.py, and read amd_files.py
    process_meter.py ─ the CPU time and memory of processes
    host_meter.py    ─ the CPU, memory, and disk of this machine
    intel.py         ─ whether there are GPUs of Intel's, which ranks can't use
    visible_gpus.py  ─ those of them that a process can use, by `CUDA_VISIBLE_DEVICES` and its like
    torch_build.py   ─ the platform that the installed torch is built for
    tpus.py          ─ TPU chips
    cores.py         ─ cores of the CPU
    fakes/           ─ machines that are not there, for tests and demonstrations

GPUs are numbered as torch would number them here. `PLATFORMS` has a row for each vendor's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from notebook_accel.hardware import cores, intel, torch_build, tpus, visible_gpus
from notebook_accel.hardware.amd import AmdProbe
from notebook_accel.hardware.amd_sensors import AmdSensors
from notebook_accel.hardware.gpu_readings import GpuReading, Sensors
from notebook_accel.hardware.gpus import FixedProbe, Gpu, GpuUse, Probe
from notebook_accel.hardware.nvidia import NvmlProbe
from notebook_accel.hardware.nvidia_sensors import NvmlSensors
from notebook_accel.hardware.tpus import Tpu
from notebook_accel.hardware.visible_gpus import Visible

__all__ = [
    "DEFAULT_CPU_RANKS",
    "PLATFORMS",
    "FixedProbe",
    "Gpu",
    "GpuReading",
    "GpuUse",
    "Hardware",
    "Probe",
    "Sensors",
    "detect",
    "memory_use",
    "open_sensors",
]

DEFAULT_CPU_RANKS = 4
"""The most CPU ranks that are started by default."""


@dataclass(frozen=True)
class Platform:
    """How torch uses the GPUs of one vendor. To torch, those of each row are `cuda` devices."""

    name: str
    """As in `torch_build.platform()`."""
    vendor: str
    probe: Callable[[], Probe]
    sensors: Callable[[], Sensors]
    visible: Callable[[Sequence[Gpu], Mapping[str, str]], Visible]
    variable: str
    """The environment variable that chooses the GPUs of a rank."""


PLATFORMS = (
    Platform("CUDA", "NVIDIA", NvmlProbe, NvmlSensors, visible_gpus.on_cuda, visible_gpus.CUDA),
    Platform("ROCm", "AMD", AmdProbe, AmdSensors, visible_gpus.on_rocm, visible_gpus.HIP),
)


@dataclass(frozen=True)
class Hardware:
    """The devices that ranks could run on."""

    gpus: tuple[Gpu, ...]
    """The GPUs that torch could use here, in torch's order."""
    gpu_ids: tuple[str, ...]
    """How `gpu_variable` names each of them."""
    hidden_gpus: str
    """Why GPUs of this machine cannot be used, or empty."""
    mps: bool
    """An Apple GPU that torch could use."""
    cores: int
    """Physical cores that this process may use."""
    tpu: Tpu | None = None
    """The TPU, or its emulation."""
    gpu_variable: str = visible_gpus.CUDA
    """The environment variable that chooses the GPUs of a rank."""
    exclusive_holders: Mapping[int, int] = field(default_factory=dict)
    """The process that holds a GPU which admits only one, by the GPU's index."""

    @property
    def kind(self) -> str:
        """The kind of device that is used by default: `tpu`, `cuda`, `mps` or `cpu`."""
        if self.tpu is not None and not self.tpu.emulated and not self.tpu.unusable:
            return "tpu"
        return "cuda" if self.gpus else "mps" if self.mps else "cpu"


def detect(environ: Mapping[str, str] | None = None, probe: Probe | None = None) -> Hardware:
    """Detects the devices that a process with the given environment could use.

    Args:
        environ: The environment; by default that of this process.
        probe: Lists the GPUs, which the installed torch is then taken to be built for.
    """
    environ = os.environ if environ is None else environ
    built_for = torch_build.platform()
    variable, hidden = visible_gpus.CUDA, ""
    shown = Visible((), ())
    holders: Mapping[int, int] = {}
    for row in PLATFORMS:
        if probe is not None and probe.vendor != row.vendor:
            continue
        found = (probe or row.probe()).gpus()
        if not found:
            continue
        if probe is None and built_for != row.name:
            hidden = hidden or f"the installed torch is built without {row.name}"
            continue
        shown, variable = row.visible(found, environ), row.variable
        hidden = f"{shown.hidden_by} hides them" if shown.hidden_by else ""
        if shown.gpus and all(gpu.access == "prohibited" for gpu in shown.gpus):
            shown, hidden = Visible((), ()), "the driver's compute mode, PROHIBITED, admits no process to them"
        holders = _exclusive_holders(shown.gpus, probe or row.probe())
        break
    if built_for == "XPU" and probe is None and not shown.gpus and intel.count():
        hidden = hidden or "notebook-accel has no support for Intel's"
    tpu = tpus.detect(environ)
    return Hardware(shown.gpus, shown.ids, hidden, _has_mps(), cores.usable(), tpu, variable, holders)


def _exclusive_holders(gpus: Sequence[Gpu], probe: Probe) -> dict[int, int]:
    """Who holds each GPU that admits one process, by the GPU's index."""
    if not any(gpu.access == "exclusive" for gpu in gpus):
        return {}
    uses = probe.use()
    held = {index: uses[gpu.uuid].holders for index, gpu in enumerate(gpus) if gpu.uuid in uses}
    return {index: next(iter(pids)) for index, pids in held.items() if pids and gpus[index].access == "exclusive"}


def memory_use() -> dict[str, GpuUse]:
    """The use of each GPU now, by its UUID."""
    return {uuid: use for row in PLATFORMS for uuid, use in row.probe().use().items()}


def open_sensors() -> list[Sensors]:
    """The sensors of the GPUs of this machine, for each vendor; close them."""
    return [row.sensors() for row in PLATFORMS]


def _has_mps() -> bool:
    return sys.platform == "darwin" and os.uname().machine == "arm64"
