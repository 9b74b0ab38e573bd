"""Tools for models: precision, compilation, checks before `prepare`, batch sizes, sizes on the meta device.

Start reading at `precision.py`.
"""
