"""Detects the devices of this machine without opening one.

NVIDIA GPUs are listed through NVML, which creates no CUDA context, and numbered as torch would number them here: by
`CUDA_VISIBLE_DEVICES`. Nothing imports torch; whether it was built for CUDA is read from its version file. TPUs have a
file of their own.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import itertools
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from notebook_accel.hardware import tpus
from notebook_accel.hardware.tpus import Tpu

DEFAULT_CPU_RANKS = 4
"""The most CPU ranks that are started by default."""


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU."""

    name: str
    uuid: str
    total: int
    """Memory in bytes."""


class Probe(Protocol):
    """Lists the GPUs of a machine, in PCI order. `FixedProbe` is one without a machine."""

    def gpus(self) -> Sequence[Gpu]: ...


class NvmlProbe:
    """Queries the NVIDIA driver, once per process: a query takes tens of milliseconds."""

    def gpus(self) -> Sequence[Gpu]:
        return _query_nvml()


@functools.cache
def _query_nvml() -> tuple[Gpu, ...]:
    with _nvml() as nvml:
        return tuple(
            Gpu(
                _text(nvml.nvmlDeviceGetName(handle)),
                _text(nvml.nvmlDeviceGetUUID(handle)),
                nvml.nvmlDeviceGetMemoryInfo(handle).total,
            )
            for handle in _handles(nvml)
        )


@dataclass(frozen=True)
class GpuUse:
    """What a GPU's memory is used for now."""

    used: int
    """Bytes."""
    holders: Mapping[int, int] = field(default_factory=dict)
    """Bytes held by each process, by its ID; 0 if the driver does not report them."""


def memory_use() -> dict[str, GpuUse]:
    """The use of each GPU now, by its UUID."""
    found: dict[str, GpuUse] = {}
    with _nvml() as nvml:
        for handle in _handles(nvml):
            running: Sequence[Any] = ()
            with contextlib.suppress(nvml.NVMLError):  # some containers are not permitted to
                running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            holders = {each.pid: each.usedGpuMemory or 0 for each in running}
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            found[_text(nvml.nvmlDeviceGetUUID(handle))] = GpuUse(memory.used, holders)
    return found


@contextlib.contextmanager
def _nvml() -> Iterator[Any]:
    """NVIDIA's management library, initialized; `None` if it is not installed or finds no GPU."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")  # what pynvml would load; the import alone takes 20 ms
        import pynvml as nvml

        nvml.nvmlInit()
    except (OSError, ImportError):
        yield None
        return
    except nvml.NVMLError:  # no driver, or no GPU
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def _handles(nvml: Any) -> list[Any]:
    if nvml is None:
        return []
    return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]


@dataclass(frozen=True)
class FixedProbe:
    """A machine with the given GPUs, for plans and tests on machines without GPUs."""

    listed: Sequence[Gpu]

    def gpus(self) -> Sequence[Gpu]:
        return self.listed


@dataclass(frozen=True)
class Hardware:
    """The devices that ranks could run on."""

    gpus: tuple[Gpu, ...]
    """The GPUs that torch could use here, in torch's order."""
    cuda_ids: tuple[str, ...]
    """How `CUDA_VISIBLE_DEVICES` names each of them."""
    hidden_gpus: str
    """Why GPUs of this machine cannot be used, or empty."""
    mps: bool
    """An Apple GPU that torch could use."""
    cores: int
    """Physical cores that this process may use."""
    tpu: Tpu | None = None
    """The TPU, or its emulation."""

    @property
    def kind(self) -> str:
        """The kind of device that is used by default: `tpu`, `cuda`, `mps` or `cpu`."""
        if self.tpu is not None and not self.tpu.emulated and not self.tpu.unusable:
            return "tpu"
        return "cuda" if self.gpus else "mps" if self.mps else "cpu"


def detect(environ: Mapping[str, str] | None = None, probe: Probe | None = None) -> Hardware:
    """Detects the devices that a process with the given environment could use."""
    environ = os.environ if environ is None else environ
    found = tuple((probe or NvmlProbe()).gpus())
    built = _torch_cuda()
    gpus, ids = _visible(found, environ.get("CUDA_VISIBLE_DEVICES"))
    hidden = ""
    if found and not gpus:
        hidden = f"CUDA_VISIBLE_DEVICES={environ.get('CUDA_VISIBLE_DEVICES')!r} hides them"
    elif found and built is None and probe is None:
        gpus, ids, hidden = (), (), "the installed torch is built without CUDA"
    return Hardware(gpus, ids, hidden, _has_mps(), usable_cores(), tpus.detect(environ))


def usable_cores() -> int:
    """Physical cores, within this process's affinity and its container's quota; at least 1."""
    import psutil  # slow to import, but only launches need it

    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count() or 1
    cores = max(1, allowed // threads_per_core())
    quota = container_quota()
    return max(1, min(cores, int(quota))) if quota else cores


@functools.cache
def threads_per_core() -> int:
    """Logical cores per physical core; 1 if that is not known."""
    import psutil

    logical = psutil.cpu_count() or 1
    return max(1, logical // (psutil.cpu_count(logical=False) or logical))


def _visible(gpus: tuple[Gpu, ...], setting: str | None) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """The GPUs that CUDA shows for a value of `CUDA_VISIBLE_DEVICES`, read as torch reads it.

    All entries must be of the kind of the first, numbers or UUIDs. The list ends at the first entry that names no GPU;
    a duplicate entry makes it empty.
    """
    if setting is None:
        return gpus, tuple(str(index) for index in range(len(gpus)))
    entries = [entry.strip() for entry in setting.split(",")]
    prefix = entries[0][:4] if entries[0].startswith(("GPU-", "MIG-")) else ""
    entries = list(
        itertools.takewhile(lambda entry: entry.startswith(prefix) if prefix else entry.isdecimal(), entries)
    )
    if len({entry if prefix else int(entry) for entry in entries}) < len(entries):
        return (), ()
    found = [_by_uuid(gpus, entry) if prefix else _by_number(gpus, entry) for entry in entries]
    shown = tuple(itertools.takewhile(lambda gpu: gpu is not None, found))
    return shown, tuple(entries[: len(shown)])  # type: ignore[return-value]  # none of these is `None`


def _by_uuid(gpus: tuple[Gpu, ...], entry: str) -> Gpu | None:
    """The one GPU whose UUID begins with `entry`. A slice of a GPU (MIG) is a device of its own."""
    if entry.startswith("MIG-"):
        return Gpu("MIG device", entry, 0)
    named = [gpu for gpu in gpus if entry.startswith("GPU-") and gpu.uuid.startswith(entry)]
    return named[0] if len(named) == 1 else None


def _by_number(gpus: tuple[Gpu, ...], entry: str) -> Gpu | None:
    return gpus[int(entry)] if int(entry) < len(gpus) else None


def _torch_cuda() -> str | None:
    """The CUDA version that the installed torch is built for, read without importing it."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return getattr(getattr(torch, "version", None), "cuda", None)
    spec = importlib.util.find_spec("torch")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        version = Path(folder) / "version.py"
        if version.is_file():
            match = re.search(r"^cuda\b[^=]*=\s*'([^']*)'", version.read_text(), re.MULTILINE)
            return match and match[1]
    return None


def _has_mps() -> bool:
    return sys.platform == "darwin" and os.uname().machine == "arm64"


def container_quota() -> float | None:
    """The number of CPUs that the control group allows, if it limits them."""
    try:
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return None
    return None if limit == "max" else int(limit) / int(period)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
