# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.errors import (
    DistributedOperationException,
)
from notebook_accel.train.helpers.parallel_models import (
    convert_outputs_to_fp32,
)
from notebook_accel.train.models.precision import (
    convert_to_fp32,
)
from notebook_accel.train.options.enums import (
    DistributedType,
)
from notebook_accel.train.ranks.collectives import (
    broadcast,
    broadcast_object_list,
    copy_tensor_to_devices,
    gather,
    gather_object,
    pad_across_processes,
    reduce,
)
from notebook_accel.train.ranks.state import (
    PartialState,
)
from notebook_accel.train.tensors.pytree import (
    TensorInformation,
    find_batch_size,
    find_device,
    get_data_structure,
    honor_type,
    ignorant_find_batch_size,
    initialize_tensors,
    is_namedtuple,
    is_tensor_information,
    is_torch_tensor,
    listify,
    recursively_apply,
    send_to_device,
)
from notebook_accel.train.tensors.rows import (
    concatenate,
    slice_tensors,
)

__all__ = [
    "DistributedOperationException",
    "DistributedType",
    "PartialState",
    "TensorInformation",
    "broadcast",
    "broadcast_object_list",
    "concatenate",
    "convert_outputs_to_fp32",
    "convert_to_fp32",
    "copy_tensor_to_devices",
    "find_batch_size",
    "find_device",
    "gather",
    "gather_object",
    "get_data_structure",
    "honor_type",
    "ignorant_find_batch_size",
    "initialize_tensors",
    "is_namedtuple",
    "is_tensor_information",
    "is_torch_tensor",
    "listify",
    "pad_across_processes",
    "recursively_apply",
    "reduce",
    "send_to_device",
    "slice_tensors",
]
