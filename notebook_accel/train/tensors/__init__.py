"""Tensors without ranks: batches as trees (`tree.py`), tensors as bytes (`packing.py`), sharded tensors (`shards.py`).

Start reading at `tree.py`.
"""
