# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.launch.driver.launcher import (
    debug_launcher,
    notebook_launcher,
)

__all__ = [
    "debug_launcher",
    "notebook_launcher",
]
