# Written by scripts/generate from notebook_accel/exports.py.
from accelerate.optimizer import move_to_device as move_to_device, patch_optimizer_step as patch_optimizer_step
from notebook_accel.train.options.enums import DistributedType as DistributedType
from notebook_accel.train.ranks.gradient_state import GradientState as GradientState
from notebook_accel.train.ranks.state import AcceleratorState as AcceleratorState
from notebook_accel.train.steps.optimizer import AcceleratedOptimizer as AcceleratedOptimizer
