# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.train.helpers.fsdp_files import (
    merge_fsdp_weights,
)

__all__ = [
    "merge_fsdp_weights",
]
