"""What the installed torch is built for, read from its version file: importing torch takes seconds."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

_PLATFORMS = {"cuda": "CUDA", "hip": "ROCm", "xpu": "XPU"}
"""The names in `torch.version`, and those of the vendors' platforms."""


def platform() -> str:
    """`CUDA`, `ROCm` or `XPU`; empty for a build that runs on the CPU alone, and where torch is not installed."""
    torch = sys.modules.get("torch")
    if torch is not None:
        version = getattr(torch, "version", None)
        return next((title for name, title in _PLATFORMS.items() if getattr(version, name, None)), "")
    spec = importlib.util.find_spec("torch")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        file = Path(folder) / "version.py"
        if file.is_file():
            text = file.read_text()
            named = (title for name, title in _PLATFORMS.items() if re.search(rf"(?m)^{name}\b[^=]*=\s*'[^']+'", text))
            return next(named, "")
    return ""
