# Written by scripts/generate from notebook_accel/exports.py.
from notebook_accel.train.ranks.gradient_state import GradientState as GradientState
from notebook_accel.train.ranks.state import AcceleratorState as AcceleratorState
from notebook_accel.train.steps.scheduler import AcceleratedScheduler as AcceleratedScheduler
