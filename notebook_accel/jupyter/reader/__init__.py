"""PROCESS reader: reads jobs and devices for the Jupyter server, which is never held up by that.

main.py           ─ answers the server's requests; start reading here
job_list.py       ─ lists the user's jobs; stops, marks, or deletes one
job_fold.py       ─ a job on disk: its state and its main metric, read on while it runs
job_row.py        ─ one job as the browser gets it
comparisons.py    ─ a metric of several jobs, read when somebody looks
run_metric.py     ─ a metric of one of them; the main metric of a job in the list
panels.py         ─ the panels of jobs in tabs
job_texts.py      ─ jobs as agents read them
device_history.py ─ reads the devices of this machine, and remembers five minutes
"""
