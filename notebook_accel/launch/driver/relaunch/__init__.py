"""Launches a job again in another kernel, which then continues from its checkpoints: `%accelerate resume`.

unfinished_jobs.py ─ finds the job to resume
starting.py        ─ launches it again, with the stored code or with the notebook's
"""
