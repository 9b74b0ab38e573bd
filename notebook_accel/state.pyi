# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.train.helpers.environ import (
    get_int_from_env,
    parse_flag_from_env,
)
from notebook_accel.train.options.enums import (
    DistributedType,
    DynamoBackend,
)
from notebook_accel.train.options.plugins import (
    GradientAccumulationPlugin,
)
from notebook_accel.train.ranks.gradient_state import (
    GradientState,
)
from notebook_accel.train.ranks.state import (
    AcceleratorState,
    PartialState,
    is_initialized,
)

__all__ = [
    "AcceleratorState",
    "DistributedType",
    "DynamoBackend",
    "GradientAccumulationPlugin",
    "GradientState",
    "PartialState",
    "get_int_from_env",
    "is_initialized",
    "parse_flag_from_env",
]
