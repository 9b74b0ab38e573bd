"""A job as a value: the fold of its events, what each rank is doing, why it failed, and all of that as text.

Runs in any process, and does no input or output. Start reading at `job.py`.
"""
