"""The logs of the ranks, in the panel and in the notebook.

log_requests.py ─ answers a log that is open in the panel: its last lines, earlier ones, and the whole as a file
"""
