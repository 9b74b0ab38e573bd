"""Several launches of one function: what is learned from all of them together.

scaling.py ─ the throughput by the number of ranks
"""
