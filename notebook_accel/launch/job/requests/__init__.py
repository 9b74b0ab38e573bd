"""Requests of a job's methods to the code that runs the job, and to its ranks.

runner.py           ─ what a job can request of the code that runs it, in this process or in another one
job_handle.py       ─ the state of a job, with its runner
rank_replies.py     ─ sends a request to the ranks, and waits for their replies
number_arguments.py ─ checks the numbers that users pass to these methods
short_errors.py     ─ hides the package's own frames from the errors of methods that wait for ranks
"""
