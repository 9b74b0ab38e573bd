# Written by scripts/generate from notebook_accel/exports.py.
from notebook_accel.launch.driver.launcher import debug_launcher as debug_launcher, notebook_launcher as notebook_launcher
from notebook_accel.train.helpers.environ import patch_environment as patch_environment
from notebook_accel.train.options.enums import PrecisionType as PrecisionType
from notebook_accel.train.ranks.state import AcceleratorState as AcceleratorState, PartialState as PartialState
