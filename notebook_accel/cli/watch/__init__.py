"""Draws a launch from the command line in the terminal while its ranks run.

In the command's process:

    watcher.py        ─ the event loop: accepts connections from ranks, reads their events and their output
    watched_job.py         ─ folds the events into a job and draws it; watched_launch.py describes it

In each rank:

    wrapper.py        ─ the script that torch's launcher runs
    rank_variables.py ─ the environment variables that differ between ranks
    script_process.py ─ runs the script as `python SCRIPT` would, and ends the process
    watched_rank.py   ─ connects to the watcher, and has the script's progress sent by a channel thread, as in any rank
"""
