# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.train.ranks.seeds import (
    set_seed,
    synchronize_rng_state,
    synchronize_rng_states,
)

__all__ = [
    "set_seed",
    "synchronize_rng_state",
    "synchronize_rng_states",
]
