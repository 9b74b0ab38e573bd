# Written by scripts/generate from notebook_accel/exports.py.
from notebook_accel.train.helpers.probes import get_backend as get_backend
