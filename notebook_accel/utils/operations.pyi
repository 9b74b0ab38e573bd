# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.errors import (
    DistributedOperationException,
)
from notebook_accel.train.ranks.collectives import (
    broadcast,
    broadcast_object_list,
    gather,
    gather_object,
    pad_across_processes,
    reduce,
)
from notebook_accel.train.tensors.tree import (
    concatenate,
    find_batch_size,
    get_data_structure,
    initialize_tensors,
    listify,
    recursively_apply,
    send_to_device,
    slice_tensors,
)

__all__ = [
    "DistributedOperationException",
    "broadcast",
    "broadcast_object_list",
    "concatenate",
    "find_batch_size",
    "gather",
    "gather_object",
    "get_data_structure",
    "initialize_tensors",
    "listify",
    "pad_across_processes",
    "recursively_apply",
    "reduce",
    "send_to_device",
    "slice_tensors",
]
