"""A base server that is told how much memory is free."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from notebook_accel.launch.server import base
from notebook_accel.launch.system import limits


def main(*arguments: Any) -> None:
    """As that of `base`."""
    free = Path(os.environ["FREE_MEMORY"])
    limits.free_memory = lambda: int(free.read_text())
    base.main(*arguments)
