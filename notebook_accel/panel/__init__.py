"""What the panel of a job shows, wherever the browser draws it: below a cell, or in a tab of JupyterLab.

panel_model.py    ─ the types of its state, and of what pages get; `scripts/generate` writes extension/src/model.ts
panel_session.py  ─ one panel on a page: takes what the page sends, and says what is new; start reading here
panel_state.py    ─ makes the state of a job
merge_patch.py    ─ computes the changes of the state, so that only those are sent
pacing.py         ─ decides when views are redrawn
panel_charts.py   ─ draws metrics
questions.py      ─ what charts and logs ask, answered by chart_requests.py and log_requests.py
panel_controls.py ─ pauses, saves, ends, tunes, and inspects a training run
html_page.py      ─ the job as HTML without scripts, which stays in the notebook; static_chart.py draws its charts

It knows neither how the state reaches the browser nor where the job runs: `notebook/views/` sends it from the kernel,
and `jupyter/reader/` from the job's journal.
"""
