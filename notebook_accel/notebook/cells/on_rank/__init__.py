"""The part of `%%accelerate` that runs in the ranks.

Start reading at `worker.py` (the functions that the kernel calls on a rank), then `shell.py`.
"""
