# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.train.checkpoints.parts import (
    OPTIMIZER_NAME,
)
from notebook_accel.train.checkpoints.weights import (
    SAFE_WEIGHTS_NAME,
    WEIGHTS_NAME,
)
from notebook_accel.train.helpers.fsdp_files import (
    merge_fsdp_weights,
)
from notebook_accel.train.options.fsdp import (
    FSDP_MODEL_NAME,
)

__all__ = [
    "FSDP_MODEL_NAME",
    "OPTIMIZER_NAME",
    "SAFE_WEIGHTS_NAME",
    "WEIGHTS_NAME",
    "merge_fsdp_weights",
]
