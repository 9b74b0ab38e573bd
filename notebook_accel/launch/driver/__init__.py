"""What the kernel does, or the process of a detached job: starts ranks, pumps their events into a job, ends them.

Start reading at `launcher.py` (what users call), then `attempts.py`, then `call.py` (one call on a group of ranks).
"""
