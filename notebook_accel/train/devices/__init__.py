"""What differs from one kind of device to the next.

Start reading at `random_states.py`.
"""
