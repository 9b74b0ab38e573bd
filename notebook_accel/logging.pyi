# Written by scripts/generate from notebook_accel/exports.py.
from notebook_accel.train.ranks.logging import MultiProcessAdapter as MultiProcessAdapter, get_logger as get_logger
from notebook_accel.train.ranks.state import PartialState as PartialState
