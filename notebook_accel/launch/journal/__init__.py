"""A job's journal: a folder on disk, written while the job runs, and read by any process that attaches to it.

    records.py        ─ the folder of each job: its files, which jobs exist and run
    private_files.py  ─ opens and writes files that no other user can read
    pruning.py        ─ removes the oldest of them
    writing.py        ─ writes the journal of a job that runs in this process; start reading here
    state_file.py     ─ the state: the fewest events that fold to it
    log_files.py      ─ what the ranks have written and displayed; see `launch/job/output_log.py`
    report_file.py    ─ every report of metrics
    slices.py         ─ reads what is long a limited time at once
    followed_job.py   ─ a job as its journal has it; job_summary.py is the same in short
    results.py        ─ what the ranks of a detached job returned or raised, and the result of the job made of it
    saved_launch.py   ─ what is needed to launch a job again that saves checkpoints
    marks.py          ─ the names, notes, and pins that users give their jobs in a page of Jupyter
    pages.py          ─ which pages of Jupyter draw jobs from disk, and in which cells
    requests.py       ─ requests to a job that another process runs, such as for the stacks of its ranks

A running job and a process that reads its journal have the same state.
"""
