# Written by scripts/generate from notebook_accel/exports.py.
from . import config as config
