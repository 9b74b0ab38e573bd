"""Nested tensors: batches as trees.

Start reading at `tree.py`.
"""
