"""Tools for models: precision, compilation, checks in and after `prepare`, batch sizes, sizes on the meta device.

Start reading at `precision.py`.
"""
