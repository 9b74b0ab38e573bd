# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.train.checkpoints.weights import (
    load_checkpoint_in_model,
)

__all__ = [
    "load_checkpoint_in_model",
]
