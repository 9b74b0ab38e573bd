# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.train.helpers.device_probes import (
    is_cuda_available,
    is_xpu_available,
)
from notebook_accel.train.models.batch_size import (
    clear_device_cache,
    find_executable_batch_size,
    release_memory,
    should_reduce_batch_size,
)

__all__ = [
    "clear_device_cache",
    "find_executable_batch_size",
    "is_cuda_available",
    "is_xpu_available",
    "release_memory",
    "should_reduce_batch_size",
]
