"""Measures how a function scales with the number of ranks: `scaling(train, [1, 2, 4])`.

scaling.py       ─ launches the function with each number of ranks
scaling_curve.py ─ what users get: a table with the efficiency, drawn as bars
"""
