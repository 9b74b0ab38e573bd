# Written by scripts/generate from notebook_accel/exports.py.
from accelerate.state import SharedDict as SharedDict, ThreadLocalSharedDict as ThreadLocalSharedDict, do_nothing as do_nothing
from notebook_accel.train.helpers.environ import get_int_from_env as get_int_from_env, parse_flag_from_env as parse_flag_from_env
from notebook_accel.train.options.enums import DistributedType as DistributedType, DynamoBackend as DynamoBackend
from notebook_accel.train.options.plugins import GradientAccumulationPlugin as GradientAccumulationPlugin
from notebook_accel.train.ranks.gradient_state import GradientState as GradientState
from notebook_accel.train.ranks.state import AcceleratorState as AcceleratorState, PartialState as PartialState, is_initialized as is_initialized
