"""What users can choose: enums, and dataclasses for `Accelerator(...)`, with Accelerate's names and defaults.

Start reading at `plugins.py`.
"""
