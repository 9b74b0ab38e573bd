"""The screen: the front end, a job's table in a terminal, and the ranks' output as labeled lines.

Runs in the driver. Start reading at `front_end.py`.
"""
