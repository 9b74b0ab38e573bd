"""The driver: the kernel, or the process of a detached job. Starts ranks, applies their events to a job, stops them.

Start reading at `launcher.py` (what users call), then `launch.py` (one launch, with its restarts), then
`call_runner.py` (one call on a group of ranks). `stop_policy.py` and `escalation.py` turn SIGINT into SIGTERM and
SIGKILL; `stall_watch.py` decides whether a job stalls; `interaction/` prompts the user, and lets the notebook's
debugger reach the ranks.
"""
