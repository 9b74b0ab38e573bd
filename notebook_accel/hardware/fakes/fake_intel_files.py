"""The files of Intel's driver, for a machine that is not there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from notebook_accel.hardware.fakes.fake_gpu import FakeGpu


def write_intel_files(root: Path, gpus: Sequence[FakeGpu], *, number: str = "0xe20b") -> None:
    """Writes the files of the `xe` driver for a machine with these GPUs; `root` is that of an `IntelProbe`.

    Args:
        root: An empty folder.
        gpus: The GPUs, whose names the driver doesn't know.
        number: The number of the product, by which they are named.
    """
    for index, gpu in enumerate(gpus):
        device = root / f"sys/class/drm/renderD{128 + index}/device"
        (device / "tile0").mkdir(parents=True)
        (device / "vendor").write_text("0x8086\n")
        (device / "device").write_text(f"{number}\n")
        (device / "tile0/physical_vram_size_bytes").write_text(f"{gpu.total}\n")
