"""What the panel of a job shows, wherever the browser draws it: below a cell, or in a tab of JupyterLab.

panel_model.py ─ the types of its state; `scripts/generate` writes extension/src/model.ts from them
panel_state.py ─ makes the state of a job; start reading here
run_text.py    ─ facts about the run, and how it is getting on in a few words
merge_patch.py ─ computes the changes of the state, so that only those are sent
pacing.py      ─ limits how often views are redrawn
charts/        ─ draws metrics, and answers charts that are enlarged
controls/      ─ pauses, saves, ends, tunes, and inspects a training
logs/          ─ answers logs that are open

It knows neither how the state reaches the browser nor where the job runs: `notebook/views/` sends it from the kernel,
and `jupyter/reader/` from the job's journal.
"""
