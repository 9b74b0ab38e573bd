# Written by scripts/generate from notebook_accel/exports.py.
from notebook_accel.train.options.enums import RNGType as RNGType
from notebook_accel.train.ranks.seeds import set_seed as set_seed, synchronize_rng_state as synchronize_rng_state, synchronize_rng_states as synchronize_rng_states
from notebook_accel.train.ranks.state import AcceleratorState as AcceleratorState
