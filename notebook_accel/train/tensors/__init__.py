"""Tensor utilities that need no process group: nested batches, tensors as bytes, sharded tensors.

Start reading at `pytree.py` (batches); `rows.py` counts, takes, and joins their samples, `packing.py` makes bytes of
tensors, `shards.py` knows DTensors, and `graph.py` finds the parameters that a loss depends on.
"""
