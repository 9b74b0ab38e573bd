# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.train.ranks.logging import (
    get_logger,
)

__all__ = [
    "get_logger",
]
