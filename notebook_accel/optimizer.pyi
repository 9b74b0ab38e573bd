# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.train.options.enums import (
    DistributedType,
)
from notebook_accel.train.ranks.gradient_state import (
    GradientState,
)
from notebook_accel.train.ranks.state import (
    AcceleratorState,
)
from notebook_accel.train.steps.optimizer import (
    AcceleratedOptimizer,
)

__all__ = [
    "AcceleratedOptimizer",
    "AcceleratorState",
    "DistributedType",
    "GradientState",
]
