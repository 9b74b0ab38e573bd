"""How a launch from the command line is drawn in the terminal while its ranks run.

In the command's process:

    watcher.py        ─ the event loop: accepts connections from ranks, reads their events and their output
    screen.py         ─ folds the events into a job and draws it; subject.py describes what is watched

In each rank:

    wrapper.py        ─ what torch's launcher runs, by its path
    script_process.py ─ runs the script as `python SCRIPT` would, and ends the process
    watched_rank.py   ─ connects to the watcher, and makes events of what the script does
    emitter.py        ─ the thread that sends them
"""
