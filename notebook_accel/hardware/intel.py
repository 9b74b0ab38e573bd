"""Finds Intel GPUs through the kernel's files. Ranks don't run on them: see `docs/gpu.md`."""

from __future__ import annotations

import contextlib
from pathlib import Path

_VENDOR = "0x8086"


def count(root: Path = Path("/")) -> int:
    """How many GPUs of Intel's this machine has, those in its processors among them."""
    found = 0
    for file in root.glob("sys/class/drm/renderD*/device/vendor"):
        with contextlib.suppress(OSError):
            found += file.read_text().strip() == _VENDOR
    return found
