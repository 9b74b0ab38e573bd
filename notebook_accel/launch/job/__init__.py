"""A job as a value: the fold of its events, what each rank is doing, why it failed, and the words for all of it.

Runs in any process, and does no input or output. Start reading at `job.py`.
"""
