"""Profiles training steps with torch's profiler while a request asks for it.

step_boundaries.py ─ tells when a training step ends
step_profiles.py   ─ starts and stops the profiler at the ends of steps, and replies
other_profilers.py ─ profilers of the user's code, which come first
trace_file.py      ─ the trace, shortened and compressed
"""
