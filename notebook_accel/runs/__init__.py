"""Several launches of one function: what is learned from all of them together.

sweep.py       ─ `sweep`: its arguments, and the devices of each trial; start reading here
search.py      ─ the parameters of trials, and successive halving
schedule.py    ─ the loop that runs the trials
trial.py       ─ one trial, and the metrics that it reports
record.py      ─ a sweep on disk
board.py       ─ a sweep below its cell
runs.py        ─ what `sweep` returns; coordinates.py draws its picture
rehearsal.py   ─ a few steps of a training run, to know what fits and how fast; rehearsed_call.py runs on its ranks
scaling.py     ─ the throughput by the number of ranks
"""
