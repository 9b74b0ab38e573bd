# Written by scripts/generate from notebook_accel/exports.py.
from notebook_accel.train.helpers.probes import STR_OPERATION_TO_FUNC as STR_OPERATION_TO_FUNC, compare_versions as compare_versions, is_torch_version as is_torch_version
