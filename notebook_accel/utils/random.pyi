# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.train.options.enums import (
    RNGType,
)
from notebook_accel.train.ranks.seeds import (
    set_seed,
    synchronize_rng_state,
    synchronize_rng_states,
)
from notebook_accel.train.ranks.state import (
    AcceleratorState,
)

__all__ = [
    "AcceleratorState",
    "RNGType",
    "set_seed",
    "synchronize_rng_state",
    "synchronize_rng_states",
]
