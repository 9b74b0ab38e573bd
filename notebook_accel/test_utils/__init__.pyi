# Written by scripts/generate from notebook_accel/exports.py.
from . import testing as testing, training as training
