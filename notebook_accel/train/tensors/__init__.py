"""Tensor utilities that need no process group: nested batches, tensors as bytes, sharded tensors.

Start reading at `tree.py` (batches); `packing.py` makes bytes of tensors, and `shards.py` knows DTensors.
"""
