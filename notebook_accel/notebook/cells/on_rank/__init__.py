"""The part of `%%accelerate` that runs in the ranks.

Start reading at `worker.py` (what the notebook asks a rank to do), then `shell.py`.
"""
