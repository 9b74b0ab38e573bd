"""Understanding a job: where its time goes, and how it compares with another one.

Reads jobs, asks their ranks, and draws what it finds as text and as HTML. Runs in any process that has a job.

inspected_job.py   ─ the methods of a `Job` that lead here; start reading here
step_times.py      ─ the parts of a training step, as `job.anatomy` returns them
explanation.py     ─ why a job has failed, is stalled, or is slow, with the evidence
job_facts.py       ─ a job's state for programs, as JSON
advice.py          ─ what would make training faster
flamegraph.py      ─ where the ranks' Python code spends its time
profiles.py        ─ training steps as torch's profiler sees them, of profile_traces.py and profile_summary.py
collectives.py     ─ the last collectives of each rank
comparison.py      ─ two jobs side by side
metric_steps.py    ─ a metric step by step, as its chart draws it
metric_series.py   ─ every value of a metric, for an enlarged chart
frames.py          ─ rows as a DataFrame, where pandas is installed
pictures.py        ─ the HTML that these and the views of a job are drawn with
"""
