"""A job as its journal has it.

job_summary.py  ─ in a line
followed_job.py ─ as a `Job` that is read on while it runs
"""
