"""Hardware that is not there."""

from __future__ import annotations

from collections.abc import Sequence

from notebook_accel.hardware import Device, Hardware, Listing
from notebook_accel.hardware.tpus import Tpu


def fake_hardware(
    gpus: Sequence[Device] = (), *, hidden: str = "", mps: bool = False, cores: int = 2, tpu: Tpu | None = None
) -> Hardware:
    """What `detect` would find.

    Args:
        gpus: NVIDIA's.
        hidden: Why ranks can't use these; a GPU is added if there is none.
        mps: Whether there is an Apple GPU.
        cores: The number of cores.
        tpu: The TPU, or its emulation.
    """
    listings = {"cpu": Listing((Device(f"CPU, {cores} core{'s' if cores > 1 else ''}", "cpu", 64 << 30),), ("0",))}
    if gpus or hidden:
        shown = tuple(gpus) or (Device("NVIDIA H100", "GPU-0", 80 << 30),)
        listings["cuda"] = Listing(shown, tuple(str(index) for index in range(len(shown))), hidden)
    if mps:
        listings["mps"] = Listing((Device("Apple GPU", "mps", 64 << 30),), ("0",))
    if tpu is not None and not tpu.emulated:
        chips = tuple(Device(f"TPU {tpu.generation}", f"TPU-{index}", 0) for index in range(tpu.chips))
        listings["tpu"] = Listing(chips, tuple(str(index) for index in range(tpu.chips)), tpu.unusable)
    return Hardware(listings, cores, tpu, "CUDA")
