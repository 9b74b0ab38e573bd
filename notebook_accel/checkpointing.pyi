# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.train.checkpoints.parts import (
    OPTIMIZER_NAME,
    RNG_STATE_NAME,
    SAMPLER_NAME,
    SCALER_NAME,
    SCHEDULER_NAME,
)
from notebook_accel.train.checkpoints.weights import (
    MODEL_NAME,
    SAFE_MODEL_NAME,
    SAFE_WEIGHTS_NAME,
    WEIGHTS_NAME,
)

__all__ = [
    "MODEL_NAME",
    "OPTIMIZER_NAME",
    "RNG_STATE_NAME",
    "SAFE_MODEL_NAME",
    "SAFE_WEIGHTS_NAME",
    "SAMPLER_NAME",
    "SCALER_NAME",
    "SCHEDULER_NAME",
    "WEIGHTS_NAME",
]
