# Written by scripts/generate from notebook_accel/exports.py.
from notebook_accel.train.checkpoints.parts import OPTIMIZER_NAME as OPTIMIZER_NAME
from notebook_accel.train.checkpoints.weights import SAFE_WEIGHTS_NAME as SAFE_WEIGHTS_NAME, WEIGHTS_NAME as WEIGHTS_NAME
from notebook_accel.train.helpers.fsdp_files import merge_fsdp_weights as merge_fsdp_weights
from notebook_accel.train.options.fsdp import FSDP_MODEL_NAME as FSDP_MODEL_NAME
