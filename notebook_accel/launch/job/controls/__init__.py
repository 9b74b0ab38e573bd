"""What a user does to a training that runs: pause it, save a checkpoint, end it after an epoch, tune its values.

controlled_job.py   ─ the methods of a `Job`
control_requests.py ─ asks the ranks, and explains what they refuse
changes.py          ─ what was done, as text
short_errors.py     ─ has methods that wait for ranks fail without internal frames
"""
