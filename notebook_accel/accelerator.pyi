# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.train.accelerator.accelerator import (
    Accelerator,
)

__all__ = [
    "Accelerator",
]
