"""The kinds of devices, a row each: how they are found, counted, and measured, and what ranks on them use.

No row opens a device or imports torch. Where a machine has several kinds, ranks use the first one by default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from notebook_accel.hardware import intel, tpus, visible_gpus
from notebook_accel.hardware.amd import AmdProbe, AmdSensors
from notebook_accel.hardware.apple import AppleProbe
from notebook_accel.hardware.cores import CpuProbe
from notebook_accel.hardware.device_probe import Device, Listing, Probe, Sensors
from notebook_accel.hardware.intel import IntelProbe
from notebook_accel.hardware.nvidia import NvmlProbe, NvmlSensors
from notebook_accel.hardware.tpus import TpuProbe


def _all(devices: Sequence[Device], environ: Mapping[str, str]) -> Listing:
    """Those that no variable hides."""
    return Listing(tuple(devices), tuple(str(index) for index in range(len(devices))))


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """One kind of device."""

    name: str
    """`tpu`, `cuda`, `rocm`, `xpu`, `mps` or `cpu`."""
    title: str
    """For messages, in the plural."""
    device: str
    """The `device=` of launches that use it, which is `cuda` also for AMD's; empty if ranks don't run on it."""
    torch_type: str
    """The type of its devices in torch."""
    backend: str
    """What carries collective operations between ranks that have a device each; empty if ranks don't run on it."""
    probe: Callable[[], Probe]
    """Lists its devices, and reads how much of their memory is in use."""
    narrow: Callable[[Sequence[Device], Mapping[str, str]], Listing] = _all
    """Leaves those devices that a process with some environment can use, in torch's order."""
    variable: str = ""
    """The environment variable that chooses the devices of a rank; empty if there is none."""
    built_for: str = ""
    """The build of torch that it needs, as in `torch_build.platform()`; empty if each will do."""
    memory: str = ""
    """What to show for its memory where its probe doesn't report the use of it."""
    sensors: Callable[[], Sensors] | None = None
    """Measures its devices; `None` if no driver reports anything to other processes."""


ACCELERATORS = (
    Accelerator(
        name="tpu", title="TPUs", device="tpu", torch_type="xla", backend="xla",
        probe=TpuProbe, narrow=tpus.narrow,
    ),
    Accelerator(
        name="cuda", title="NVIDIA GPUs", device="cuda", torch_type="cuda", backend="nccl",
        probe=NvmlProbe, narrow=visible_gpus.on_cuda, variable=visible_gpus.CUDA, built_for="CUDA",
        sensors=NvmlSensors,
    ),
    Accelerator(
        name="rocm", title="AMD GPUs", device="cuda", torch_type="cuda", backend="nccl",
        probe=AmdProbe, narrow=visible_gpus.on_rocm, variable=visible_gpus.HIP, built_for="ROCm",
        sensors=AmdSensors,
    ),
    Accelerator(
        name="xpu", title="Intel GPUs", device="", torch_type="xpu", backend="",
        probe=IntelProbe, narrow=intel.unsupported, built_for="XPU",
    ),
    Accelerator(
        name="mps", title="Apple GPUs", device="mps", torch_type="mps", backend="gloo",
        probe=AppleProbe, memory="shared with the CPU",
    ),
    Accelerator(name="cpu", title="CPUs", device="cpu", torch_type="cpu", backend="gloo", probe=CpuProbe),
)  # fmt: skip


def backend(device: str) -> str:
    """The backend between ranks that have each a device of the kind that `device=` names."""
    return next(row.backend for row in ACCELERATORS if row.device == device)
