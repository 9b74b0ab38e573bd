# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.train.checkpoints.serialization import (
    load,
    save,
)

__all__ = [
    "load",
    "save",
]
