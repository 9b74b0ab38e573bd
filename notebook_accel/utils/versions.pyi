# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.train.helpers.version_checks import (
    STR_OPERATION_TO_FUNC,
    compare_versions,
    is_torch_version,
)

__all__ = [
    "STR_OPERATION_TO_FUNC",
    "compare_versions",
    "is_torch_version",
]
