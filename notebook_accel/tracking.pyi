# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.train.trackers import (
    GeneralTracker,
    on_main_process,
)

__all__ = [
    "GeneralTracker",
    "on_main_process",
]
