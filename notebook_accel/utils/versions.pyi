# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.train.helpers.version_checks import (
    compare_versions,
    is_torch_version,
)

__all__ = [
    "compare_versions",
    "is_torch_version",
]
