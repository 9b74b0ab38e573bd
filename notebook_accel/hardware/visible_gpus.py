"""Which GPUs a process can use, by the environment variables that hide and order them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from notebook_accel.hardware.device_probe import Device, Listing

CUDA = "CUDA_VISIBLE_DEVICES"
HIP = "HIP_VISIBLE_DEVICES"
ROCR = "ROCR_VISIBLE_DEVICES"


def on_cuda(gpus: Sequence[Device], environ: Mapping[str, str]) -> Listing:
    """The GPUs that CUDA shows.

    With a GPU in MIG mode that is a single slice: CUDA enumerates one compute instance, and no whole GPU beside it.
    Source: "CUDA Device Enumeration" in NVIDIA's MIG user guide.
    """
    setting = environ.get(CUDA)
    slices = [each for gpu in gpus for each in gpu.slices]
    if setting is not None and setting.strip().startswith("MIG-"):
        first = setting.split(",")[0].strip()
        named = [each for each in slices if each.uuid.startswith(first)]
        # Older drivers have names that NVML no longer lists.
        return Listing((named[0] if len(named) == 1 else Device("MIG device", first, 0),), (first,))
    shown, ids = _read(tuple(gpus), setting)
    in_slices = [each for gpu in shown for each in gpu.slices[:1]]
    if in_slices:
        return Listing((in_slices[0],), (in_slices[0].uuid,))
    if gpus and not shown:
        return Listing(tuple(gpus), unusable=f"{CUDA}={setting!r} hides them")
    if shown and all(gpu.access == "prohibited" for gpu in shown):
        return Listing(shown, unusable="the driver's compute mode, PROHIBITED, admits no process to them")
    return Listing(shown, ids)


def on_rocm(gpus: Sequence[Device], environ: Mapping[str, str]) -> Listing:
    """The GPUs that HIP shows.

    Of those that `ROCR_VISIBLE_DEVICES` leaves, they are the ones that `HIP_VISIBLE_DEVICES` names; where that is not
    set, `CUDA_VISIBLE_DEVICES` stands in for it.

    Source: "GPU isolation techniques" in ROCm's documentation, and `torch.cuda._parse_visible_devices`.
    """
    left = tuple(gpus)
    for names in ((ROCR,), (HIP, CUDA)):
        name = next((name for name in names if name in environ), names[0])
        before = left
        left, ids = _read(left, environ.get(name), mixed=name == ROCR)
        if before and not left:
            return Listing(tuple(gpus), unusable=f"{name}={environ.get(name)!r} hides them")
    return Listing(left, ids)


def _read(
    gpus: tuple[Device, ...], setting: str | None, *, mixed: bool = False
) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """The GPUs that a variable leaves, read as torch reads it, and the entries that name them.

    Unless they may be mixed, all entries must be of the kind of the first, numbers or UUIDs. The list ends at the first
    entry that names no GPU; a duplicate entry makes it empty.
    """
    if setting is None:
        return gpus, tuple(str(index) for index in range(len(gpus)))
    entries = [entry.strip() for entry in setting.split(",")]
    by_uuid = entries[0].startswith("GPU-")
    entries = list(
        itertools.takewhile(
            lambda entry: (mixed or entry.startswith("GPU-") == by_uuid) and (entry[:4] == "GPU-" or entry.isdecimal()),
            entries,
        )
    )
    if len({entry if entry.startswith("GPU-") else int(entry) for entry in entries}) < len(entries):
        return (), ()
    shown = []
    for entry in entries:
        gpu = _by_uuid(gpus, entry) if entry.startswith("GPU-") else _by_number(gpus, entry)
        if gpu is None:
            break
        shown.append(gpu)
    return tuple(shown), tuple(entries[: len(shown)])


def _by_uuid(gpus: tuple[Device, ...], entry: str) -> Device | None:
    """The one GPU whose UUID begins with `entry`."""
    named = [gpu for gpu in gpus if gpu.uuid.lower().startswith(entry.lower())]
    return named[0] if len(named) == 1 else None


def _by_number(gpus: tuple[Device, ...], entry: str) -> Device | None:
    return gpus[int(entry)] if int(entry) < len(gpus) else None
