"""The command line: `notebook-accel COMMAND`, or `python -m notebook_accel COMMAND`.

Each command is a file, and what it needs beside it:

main.py       ─ the group of commands; which errors end with which exit code

launch.py     ─ a script, a module or a notebook on every rank:
options.py    ─ its options, one row each
refusals.py   ─ options of the peer that are not here, and what to use instead
choices.py    ─ their values, and which exclude each other
program.py    ─ what is to run
request.py    ─ from options, file and hardware to what to start
placement.py  ─ how many ranks, on which devices
meeting.py    ─ how they find each other
agent.py      ─ the process that torch's elastic launcher runs in, and who watches over it
watched.py    ─ in a terminal: a rank that tells how far it is
telling.py    ─ its thread that does
watcher.py    ─ who hears the ranks
screen.py     ─ and draws them
notebooks.py  ─ a notebook's file
cells.py      ─ a notebook's code cells, run in order in one rank

env.py, test.py, checks.py, estimate.py, sizes.py, merge.py, lab.py ─ the other commands
"""
