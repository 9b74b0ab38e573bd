# Written by scripts/generate from notebook_accel/exports.py.
from . import config_args as config_args
