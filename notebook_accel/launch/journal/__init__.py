"""A job's events on disk: appended while it runs, and read by any process that attaches to it, then or later.

    records.py        ─ the folder of each job: its files, which jobs exist and run
    pruning.py        ─ removes the oldest of them
    lines.py          ─ the format of a journal: a head, then one JSON object a line for each event
    writing.py        ─ writes the journal of a job that runs in this process; start reading here
    pending.py        ─ the events that it has not written yet
    report_file.py    ─ every report of metrics
    log_files.py      ─ every line that the ranks have written; see `launch/job/output_log.py`
    reading.py        ─ reads a journal, and follows it while it grows
    recorded/         ─ a job as its journal has it
    results.py        ─ what the ranks of a detached job returned or raised, as they sent it
    outcome.py        ─ the result of a job that ran in another process, made from these
    saved_launch.py   ─ what is needed to launch a job again that saves checkpoints
    stack_requests.py ─ requests the stacks of a job's ranks from the process that runs it
    reply_files.py    ─ the same for other requests, such as samples of the stacks for a flame graph
    private_files.py  ─ opens files that only the user may read

A running job, its journal, and the journal after compaction all fold to the same state.
"""
