"""The line magic `%accelerate`: settings, status, jobs and the subcommands of persistent ranks.

Start reading at `accelerate.py`; `subcommands.py` is the table of subcommands.
"""
