"""What the driver requests of the ranks of an attempt while they run.

reachable_ranks.py ─ the ranks that a request can reach
request_stacks.py  ─ requests their stacks
request_reports.py ─ requests their other reports
agreed_steps.py    ─ requests that they pause, change, or profile their training, after the same step
"""
