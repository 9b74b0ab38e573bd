"""Profiles of training steps by torch's profiler, as `job.profile()` returns them.

profile_request.py ─ asks the ranks for their traces
rank_trace.py      ─ a trace as torch's profiler writes it, with its clock aligned
intervals.py       ─ lengths, unions and differences of intervals of time
rank_summary.py    ─ what the steps of one rank spent their time on
operations.py      ─ the operations that took most, and where ranks differ
job_profile.py     ─ the object that users get: text, picture, files
profile_html.py    ─ the picture
merged_trace.py    ─ the traces of all ranks in one file
"""
