"""The options of training: enums and dataclasses for `Accelerator(...)`, with Accelerate's names and defaults.

Start reading at `plugins.py`.
"""
