"""A job as its journal has it.

job_summary.py ─ in a line
"""
