# Written by scripts/generate from notebook_accel/exports.py.
from notebook_accel.train.options.parallelism import ParallelismConfig as ParallelismConfig
