# Written by scripts/generate from notebook_accel/exports.py.
from notebook_accel.train.helpers.probes import is_cuda_available as is_cuda_available, is_xpu_available as is_xpu_available
from notebook_accel.train.models.batch_size import clear_device_cache as clear_device_cache, find_executable_batch_size as find_executable_batch_size, release_memory as release_memory, should_reduce_batch_size as should_reduce_batch_size
