"""The state of a job, folded from its events: what each rank is doing, why it failed, and descriptions as text.

Runs in any process, and does no input or output.

job.py                      ─ `Job`, the handle that users get; its base classes:
controls/, inspected_job.py ─ methods that change a running training, and methods that show what the ranks do
requests/                   ─ how these methods reach the code that runs the job, and the ranks
job_state.py, rank_state.py ─ the fold: an event changes a field
progress.py, describe.py    ─ summaries of that state, which all views share, and the text view
rank_error.py               ─ the exception with the failures of all ranks
location.py, stacks.py      ─ where the ranks are
metrics/, logs/             ─ what ranks have reported and written
"""
