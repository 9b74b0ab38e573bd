"""A job's events on disk: appended while it runs, and read by any process that attaches to it, then or later.

    records.py        ─ the folder of each job: its files, which jobs exist and run
    pruning.py        ─ removes the oldest of them
    lines.py          ─ the format of a journal: a head, then one JSON object a line for each event
    writing.py        ─ writes the journal of a job that runs in this process; start reading here
    pending.py        ─ the events that it has not written yet
    report_file.py    ─ every report of metrics
    log_files.py      ─ every line that the ranks have written; see `launch/job/output_log.py`
    reading.py        ─ reads a journal, and follows it while it grows
    followed_job.py   ─ a job as its journal has it; job_summary.py is the same in short
    results.py        ─ what the ranks of a detached job returned or raised, and the result of the job made of it
    saved_launch.py   ─ what is needed to launch a job again that saves checkpoints
    requests.py       ─ asks the ranks of a job that another process runs, such as for their stacks

A running job, its journal, and the journal after compaction all fold to the same state.
"""
