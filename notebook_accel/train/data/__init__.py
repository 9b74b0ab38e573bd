"""Data loaders that yield each rank its share of the samples, on its device.

Start reading at `prepare.py`, which builds the loader, then `loader.py` (each rank reads for itself) or
`dispatching_loader.py` (rank 0 reads for all).
"""

from notebook_accel.train.data.dispatching_loader import DataLoaderDispatcher
from notebook_accel.train.data.iterable_shard import IterableDatasetShard
from notebook_accel.train.data.loader import (
    DataLoaderShard,
    DataLoaderStateMixin,
    PreparedLoader,
    SkipDataLoader,
)
from notebook_accel.train.data.prepare import prepare_data_loader, skip_first_batches
from notebook_accel.train.data.samplers import SeedableRandomSampler, get_sampler
from notebook_accel.train.data.sharding import BatchSamplerShard
from notebook_accel.train.data.skipping import SkipBatchSampler

__all__ = [
    "BatchSamplerShard",
    "DataLoaderDispatcher",
    "DataLoaderShard",
    "DataLoaderStateMixin",
    "IterableDatasetShard",
    "PreparedLoader",
    "SeedableRandomSampler",
    "SkipBatchSampler",
    "SkipDataLoader",
    "get_sampler",
    "prepare_data_loader",
    "skip_first_batches",
]
