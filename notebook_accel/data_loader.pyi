# Written by scripts/generate from notebook_accel/exports.py.
from accelerate.data_loader import _PYTORCH_DATALOADER_KWARGS as _PYTORCH_DATALOADER_KWARGS
from notebook_accel.train.data.cursor import SkipBatchSampler as SkipBatchSampler
from notebook_accel.train.data.dispatching_loader import DataLoaderDispatcher as DataLoaderDispatcher
from notebook_accel.train.data.iterable_shard import IterableDatasetShard as IterableDatasetShard
from notebook_accel.train.data.loader import DataLoaderShard as DataLoaderShard, DataLoaderStateMixin as DataLoaderStateMixin, SkipDataLoader as SkipDataLoader
from notebook_accel.train.data.prepare import prepare_data_loader as prepare_data_loader, skip_first_batches as skip_first_batches
from notebook_accel.train.data.samplers import SeedableRandomSampler as SeedableRandomSampler, get_sampler as get_sampler
from notebook_accel.train.data.sharding import BatchSamplerShard as BatchSamplerShard
from notebook_accel.train.options.enums import DistributedType as DistributedType, RNGType as RNGType
from notebook_accel.train.ranks.collectives import broadcast as broadcast, broadcast_object_list as broadcast_object_list
from notebook_accel.train.ranks.gradient_state import GradientState as GradientState
from notebook_accel.train.ranks.seeds import synchronize_rng_states as synchronize_rng_states
from notebook_accel.train.ranks.state import PartialState as PartialState
from notebook_accel.train.tensors.pytree import find_batch_size as find_batch_size, get_data_structure as get_data_structure, initialize_tensors as initialize_tensors, send_to_device as send_to_device
from notebook_accel.train.tensors.rows import concatenate as concatenate, slice_tensors as slice_tensors
