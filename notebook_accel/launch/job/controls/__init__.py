"""What a user does to a training that runs: pause it, save a checkpoint, end it after an epoch, tune its values.

controlled_job.py   ─ the methods of a `Job`
control_requests.py ─ sends the requests to the ranks, and explains what they refuse
changes.py          ─ what was done, as text
"""
