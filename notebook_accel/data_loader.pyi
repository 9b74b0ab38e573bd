# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.train.data import (
    BatchSamplerShard,
    DataLoaderDispatcher,
    DataLoaderShard,
    DataLoaderStateMixin,
    IterableDatasetShard,
    SeedableRandomSampler,
    SkipBatchSampler,
    SkipDataLoader,
    get_sampler,
    prepare_data_loader,
    skip_first_batches,
)
from notebook_accel.train.options.enums import (
    DistributedType,
    RNGType,
)
from notebook_accel.train.ranks.collectives import (
    broadcast,
    broadcast_object_list,
)
from notebook_accel.train.ranks.gradient_state import (
    GradientState,
)
from notebook_accel.train.ranks.seeds import (
    synchronize_rng_states,
)
from notebook_accel.train.ranks.state import (
    PartialState,
)
from notebook_accel.train.tensors.pytree import (
    find_batch_size,
    get_data_structure,
    initialize_tensors,
    send_to_device,
)
from notebook_accel.train.tensors.rows import (
    concatenate,
    slice_tensors,
)

__all__ = [
    "BatchSamplerShard",
    "DataLoaderDispatcher",
    "DataLoaderShard",
    "DataLoaderStateMixin",
    "DistributedType",
    "GradientState",
    "IterableDatasetShard",
    "PartialState",
    "RNGType",
    "SeedableRandomSampler",
    "SkipBatchSampler",
    "SkipDataLoader",
    "broadcast",
    "broadcast_object_list",
    "concatenate",
    "find_batch_size",
    "get_data_structure",
    "get_sampler",
    "initialize_tensors",
    "prepare_data_loader",
    "send_to_device",
    "skip_first_batches",
    "slice_tensors",
    "synchronize_rng_states",
]
