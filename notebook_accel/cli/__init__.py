"""The command line: `notebook-accel COMMAND`, or `python -m notebook_accel COMMAND`.

Each command is a file, and what it needs beside it:

entry.py      ─ the way in; a launch begins to import torch here
main.py       ─ the group of commands; which errors end with which exit code (codes.py)

launch.py     ─ a script, a module or a notebook on every rank: the command and its help
options.py    ─ its options, one row each
refusals.py   ─ options of the peer that are not here, and what to use instead
choices.py    ─ their values, and which exclude each other
start.py      ─ from the options to the end of the launch
request.py    ─ from options, file and hardware to what to start
program.py    ─ what is to run
placement.py  ─ how many ranks, on which devices
meeting.py    ─ how they find each other
agent.py      ─ who watches over the process that torch's elastic launcher runs in,
elastic.py    ─ and that process, whose ranks end with it
one_node.py   ─ how the ranks of one machine meet there
script_process.py ─ a rank that runs a script, and how it ends (begun by wrapper.py)
watched.py    ─ in a terminal: one that tells how far it is
telling.py    ─ its thread that does
watcher.py    ─ who hears the ranks
screen.py     ─ and draws them
notebooks.py  ─ a notebook's file
cells.py      ─ a notebook's code cells, run in order in one rank

env.py, test.py, checks.py, estimate.py, sizes.py, merge.py, lab.py ─ the other commands
"""
