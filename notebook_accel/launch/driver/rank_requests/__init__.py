"""What the driver asks the ranks of an attempt while they run.

request_stacks.py ─ their stacks, and other reports
agreed_steps.py   ─ to pause or change their training, after the same step
"""
