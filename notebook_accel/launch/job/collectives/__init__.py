"""The last collectives of each rank, as `job.collectives()` returns them, and where ranks disagree about them.

last_collectives.py ─ asks the ranks, and makes the table
mismatch.py         ─ a sentence about ranks that are in different collectives
"""
