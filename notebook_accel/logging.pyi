# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.train.ranks.logging import (
    MultiProcessAdapter,
    get_logger,
)
from notebook_accel.train.ranks.state import (
    PartialState,
)

__all__ = [
    "MultiProcessAdapter",
    "PartialState",
    "get_logger",
]
