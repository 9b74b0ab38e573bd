# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.train.steps.scheduler import (
    AcceleratedScheduler,
)

__all__ = [
    "AcceleratedScheduler",
]
