# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.train.helpers.device_probes import (
    get_backend,
)

__all__ = [
    "get_backend",
]
