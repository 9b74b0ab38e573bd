"""The options of training: enums and dataclasses for `Accelerator(...)`, with Accelerate's names and defaults.

Start reading at `plugins.py`.
"""

# An unknown keyword of one option class is looked up in all of them.
from notebook_accel.train.options import fsdp, parallelism, plugins  # noqa: F401
