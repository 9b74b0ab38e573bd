# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.train.checkpoints.weights import (
    SAFE_WEIGHTS_NAME,
    WEIGHTS_INDEX_NAME,
    WEIGHTS_NAME,
    load_checkpoint_in_model,
)
from notebook_accel.train.helpers.module_tensors import (
    calculate_maximum_sizes,
    compute_module_sizes,
    convert_file_size_to_int,
    dtype_byte_size,
    find_tied_parameters,
    has_offloaded_params,
    id_tensor_storage,
    load_state_dict,
    named_module_tensors,
    retie_parameters,
    set_module_tensor_to_device,
)
from notebook_accel.train.helpers.parallel_models import (
    is_peft_model,
)
from notebook_accel.train.helpers.version_checks import (
    is_torch_version,
)
from notebook_accel.train.models.batch_size import (
    clear_device_cache,
)

__all__ = [
    "SAFE_WEIGHTS_NAME",
    "WEIGHTS_INDEX_NAME",
    "WEIGHTS_NAME",
    "calculate_maximum_sizes",
    "clear_device_cache",
    "compute_module_sizes",
    "convert_file_size_to_int",
    "dtype_byte_size",
    "find_tied_parameters",
    "has_offloaded_params",
    "id_tensor_storage",
    "is_peft_model",
    "is_torch_version",
    "load_checkpoint_in_model",
    "load_state_dict",
    "named_module_tensors",
    "retie_parameters",
    "set_module_tensor_to_device",
]
