# Written by scripts/generate from notebook_accel/exports.py.

from notebook_accel.train.data import (
    SeedableRandomSampler,
    prepare_data_loader,
    skip_first_batches,
)

__all__ = [
    "SeedableRandomSampler",
    "prepare_data_loader",
    "skip_first_batches",
]
