# Written by scripts/generate from notebook_accel/exports.py.
from accelerate.utils.torch_xla import install_xla as install_xla
