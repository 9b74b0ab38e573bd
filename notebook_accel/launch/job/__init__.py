"""The state of a job, folded from its events: what each rank is doing, why it failed, and descriptions as text.

Runs in any process, and does no input or output. Start reading at `job.py`.
"""
