# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.launch.driver.launcher import (
    debug_launcher,
    notebook_launcher,
)
from notebook_accel.train.helpers.environ import (
    patch_environment,
)
from notebook_accel.train.options.enums import (
    PrecisionType,
)
from notebook_accel.train.ranks.state import (
    AcceleratorState,
    PartialState,
)

__all__ = [
    "AcceleratorState",
    "PartialState",
    "PrecisionType",
    "debug_launcher",
    "notebook_launcher",
    "patch_environment",
]
