"""`notebook-accel launch`: from its options to the ranks of a script, a module or a notebook, and their end.

Start reading at `command.py`, then `request.py` (what to start), then `start.py`.
"""
