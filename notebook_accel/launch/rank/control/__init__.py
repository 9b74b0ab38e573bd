"""Pauses and changes the training on a rank, between two of its steps.

training_control.py ─ promises steps, waits at them, and does what the driver commands
progress_clocks.py  ─ leaves a pause out of what bars and the anatomy of a step measure
"""
