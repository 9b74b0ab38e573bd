"""Writes a file with `torch.save`, and says why if the disk refuses it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

_PROBE = bytes(2**16)


def save(obj: Any, path: Path) -> None:
    """Writes an object to a file.

    Raises:
        OSError: The disk is full, or refuses the file for another reason.
    """
    try:
        torch.save(obj, path)
    except RuntimeError:
        # torch's writer only says how far it came: "unexpected pos 81536 vs 81424". A disk that has refused the file
        # refuses more of it, too, and then says why.
        with open(path, "ab") as file:
            file.write(_PROBE)
            file.flush()
            os.fsync(file.fileno())
        raise
