"""Two jobs side by side, as `compare()` returns them.

measures.py   ─ the numbers of one job: throughput, parts of a step, memory
loss_curve.py ─ what its ranks reported, by step and by time
compare.py    ─ the object that users get: a table, and a verdict
"""
