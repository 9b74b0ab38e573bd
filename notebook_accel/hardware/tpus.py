"""Detects TPU chips without torch_xla, which opens devices when it counts them.

Chips are counted as torch_xla counts them before it starts processes: by Google's devices on the PCI bus. Which machine
this is, and which generation the chips are, is given by variables that Colab, Kaggle and Cloud TPU VMs set.

Sources: `torch_xla/_internal/tpu.py` and `torch_xla/__init__.py` of torch_xla 2.9.0.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from notebook_accel.hardware.device_probe import Device, DeviceUse, Listing
from notebook_accel.rank_spans import counted

_GOOGLE = "0x1ae0"
_GENERATIONS = {
    "0x0027": "v2",  # and v3
    "0x005e": "v4",
    "0x0062": "v5p",
    "0x0063": "v5e",
    "0x006f": "v6e",
    "0x0076": "v7x",
}
"""By the number of a PCI device."""
_MEMORY = {"v2": 16, "v3": 32, "v4": 32, "v5e": 16, "v5p": 95, "v6e": 32, "v7x": 192}
"""GiB of each chip, by generation, from the table of versions in Google's documentation of Cloud TPU."""
_NAMES = {"v5litepod": "v5e", "v5lite": "v5e"}
_PAIR = ("torch", "torch_xla")
_EXTRA = 'pip install "notebook-accel[tpu]"'
_DEVICES = ("dev/accel*", "dev/vfio/[0-9]*")
ACCELERATOR_TYPE = "TPU_ACCELERATOR_TYPE"


@dataclass(frozen=True)
class Tpu:
    """The TPU chips of this machine, or the CPU that torch_xla uses in their place."""

    generation: str
    """`v2` to `v7x`, as Google names them; empty if unknown."""
    chips: int
    cores: int = 1
    """Devices that torch_xla makes of each chip; each is a rank."""
    host: str = ""
    """`Colab`, `Kaggle` or `Cloud TPU VM`, where known."""
    emulated: bool = False
    """torch_xla computes on the CPU, because `PJRT_DEVICE=CPU` asks for it."""
    unusable: str = ""
    """Why ranks cannot use it, and what to do; or empty."""

    @property
    def ranks(self) -> int:
        """How many ranks torch_xla starts: one for each device, never another number."""
        return self.chips * self.cores

    @property
    def threaded(self) -> bool:
        """Whether the ranks of a chip are threads of one process; the emulation has one process for all."""
        return self.emulated or self.cores > 1

    def __str__(self) -> str:
        if self.emulated:
            return f"torch_xla on the CPU, {counted(self.chips, 'device')}"
        cores = f" of {self.cores} cores" if self.cores > 1 else ""
        return f"TPU {self.generation}, {counted(self.chips, 'chip')}{cores}".replace("TPU ,", "TPU,")


@dataclass(frozen=True)
class Machine:
    """The root folder and package lookups that detection uses; tests replace them."""

    root: Path = Path("/")
    """The folder that contains `sys`, `dev` and `proc`."""
    version: Callable[[str], str | None] = lambda name: _installed(name)
    """The version of an installed package."""
    has_library: Callable[[Mapping[str, str]], bool] = lambda environ: _has_libtpu(environ)


def detect(environ: Mapping[str, str], machine: Machine | None = None) -> Tpu | None:
    """The TPU as seen with the given environment; `None` where there is none."""
    machine = machine or Machine()
    if environ.get("PJRT_DEVICE", "").upper() == "CPU":
        if machine.version("torch_xla") is None:
            return None
        return Tpu("", _number(environ, "CPU_NUM_DEVICES"), emulated=True, unusable=mismatch(machine))
    generations = _listed(machine.root)
    nodes = len(list(device_files(machine.root)))
    if not generations and not nodes:
        return None
    generation = _generation(environ) or (generations[0] if generations else "")
    unusable = _unusable(environ, machine)
    if not generations:
        unusable = "its chips have device files, but the PCI bus does not list them, which torch_xla needs"
    return Tpu(
        generation,
        len(generations) or nodes,
        2 if generation in ("v2", "v3") else 1,
        _host(environ, machine.root),
        unusable=unusable,
    )


@dataclass(frozen=True)
class TpuProbe:
    """Lists the chips by their devices on the PCI bus, and where that lists none, by their device files."""

    root: Path = Path("/")
    """The folder that contains `sys` and `dev`; tests replace it."""
    vendor: str = "Google"

    def devices(self) -> Sequence[Device]:
        generations = _listed(self.root) or ("",) * len(list(device_files(self.root)))
        return tuple(_chip(generation, index) for index, generation in enumerate(generations))

    def use(self) -> dict[str, DeviceUse]:
        return {}  # only the process that holds a chip can tell


def _chip(generation: str, index: int) -> Device:
    return Device(f"TPU {generation}".rstrip(), f"TPU-{index}", _MEMORY.get(generation, 0) << 30)


def narrow(chips: Sequence[Device], environ: Mapping[str, str], machine: Machine | None = None) -> Listing:
    """The chips, with the generation that the environment names, and why ranks can't use them."""
    tpu = detect(environ, machine)
    if tpu is None:
        return Listing()
    if tpu.emulated:
        return Listing(tuple(chips), unusable="PJRT_DEVICE=CPU has torch_xla compute on the CPU")
    named = tuple(_chip(tpu.generation, index) for index in range(len(chips)))
    return Listing(named, tuple(str(index) for index in range(len(chips))), tpu.unusable)


def device_files(root: Path = Path("/")) -> Iterator[Path]:
    """The device files of TPU chips."""
    for pattern in _DEVICES:
        yield from sorted(root.glob(pattern))


def held(pid: int, root: Path = Path("/")) -> list[str]:
    """The device files of TPU chips that a process has open: it holds a chip from its first computation to its end."""
    prefixes = ("/dev/accel", "/dev/vfio/")
    found: set[str] = set()
    with contextlib.suppress(OSError):  # it is another user's, or has ended
        for link in (root / "proc" / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                target = os.readlink(link)
                if target.startswith(prefixes) and target[-1].isdigit():
                    found.add(target)
    return sorted(found)


def holders(root: Path = Path("/")) -> dict[int, list[str]]:
    """The processes that hold chips, with the device files of each."""
    found = {}
    for entry in (root / "proc").iterdir():
        if entry.name.isdecimal() and (files := held(int(entry.name), root)):
            found[int(entry.name)] = files
    return found


def mismatch(machine: Machine | None = None) -> str:
    """Why the installed torch and torch_xla cannot work together, and what to do; empty if they can.

    torch_xla's binary calls into torch's of the same minor version, and its metadata does not say so: with another one
    the import ends in an undefined symbol, or worse.
    """
    machine = machine or Machine()
    torch, xla = map(machine.version, _PAIR)
    if torch is None or xla is None or _minor(torch) == _minor(xla):
        return ""
    return (
        f"torch {torch} and torch_xla {xla} do not work together: both must be of the same minor version. {_EXTRA} "
        f"installs a pair that does, as does pip install torch=={_minor(xla)}.*; restart the kernel after it"
    )


def _unusable(environ: Mapping[str, str], machine: Machine) -> str:
    if machine.version("torch_xla") is None:
        return f"torch_xla is not installed: {_EXTRA}, and restart the kernel"
    if not machine.has_library(environ):
        return f"libtpu, the driver that torch_xla loads, is not installed: {_EXTRA}, and restart the kernel"
    return mismatch(machine)


@functools.cache
def _listed(root: Path) -> tuple[str, ...]:
    """The generation of each chip on the PCI bus, which is read once per process: chips stay as long as the machine."""
    found = []
    for device in sorted(root.glob("sys/bus/pci/devices/*")):
        with contextlib.suppress(OSError):
            if (device / "vendor").read_text().strip() == _GOOGLE:
                number = (device / "device").read_text().strip()
                if number in _GENERATIONS:
                    found.append(_GENERATIONS[number])
    return tuple(found)


def _generation(environ: Mapping[str, str]) -> str:
    """The generation that the variable names: `v5e` for `v5litepod-8`."""
    match = re.match(r"(?:v|tpu)(\d[a-z]*)", environ.get(ACCELERATOR_TYPE, ""))
    if match is None:
        return ""
    name = f"v{match[1]}"
    return _NAMES.get(name, name)


def _host(environ: Mapping[str, str], root: Path) -> str:
    if any(name.startswith("KAGGLE_") for name in environ) or environ.get("ISTPUVM"):
        return "Kaggle"  # whose image starts from Colab's, with some of its variables
    if environ.get("COLAB_TPU_1VM") or environ.get("COLAB_RELEASE_TAG"):
        return "Colab"
    return "Cloud TPU VM" if (root / "sys/class/dmi/id/product_name").exists() else ""


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    return max(1, int(text)) if text.isdecimal() else 1


def _installed(name: str) -> str | None:
    from importlib import metadata  # slow to import, and needed only if there may be a TPU

    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    # Runs at each launch: `version` would take milliseconds to parse all metadata of the package.
    found = re.search(r"(?m)^Version: *(\S+)", distribution.read_text("METADATA") or "")
    return found[1] if found else distribution.version


def _has_libtpu(environ: Mapping[str, str]) -> bool:
    if environ.get("TPU_LIBRARY_PATH") or importlib.util.find_spec("libtpu") is not None:
        return True
    xla = importlib.util.find_spec("torch_xla")
    return any((Path(folder) / "lib/libtpu.so").is_file() for folder in (xla and xla.submodule_search_locations) or ())


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
