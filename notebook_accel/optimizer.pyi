# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.train.steps.optimizer import (
    AcceleratedOptimizer,
)

__all__ = [
    "AcceleratedOptimizer",
]
