"""What the panel of a job shows, wherever the browser draws it: below a cell, or in a tab of JupyterLab.

panel_model.py    ─ the types of its state; `scripts/generate` writes extension/src/model.ts from them
panel_state.py    ─ makes the state of a job; start reading here
merge_patch.py    ─ computes the changes of the state, so that only those are sent
pacing.py         ─ decides when views are redrawn
panel_charts.py   ─ draws metrics; chart_requests.py answers charts that are enlarged
panel_controls.py ─ pauses, saves, ends, tunes, and inspects a training run
log_requests.py   ─ answers logs that are open
html_page.py      ─ the job as HTML without scripts, which stays in the notebook; static_chart.py draws its charts

It knows neither how the state reaches the browser nor where the job runs: `notebook/views/` sends it from the kernel,
and `jupyter/reader/` from the job's journal.
"""
