"""How a launch from the command line is drawn in the terminal while its ranks run.

Start reading at `watcher.py` (the command's side), then `watched_rank.py` (the rank's).
"""
