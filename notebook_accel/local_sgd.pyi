# Written by scripts/generate from notebook_accel/exports.py.
from notebook_accel.train.accelerator.local_sgd import LocalSGD as LocalSGD
