"""Where a launch shows itself: the front end, the table in a terminal, the labelled lines of output.

Runs in the driver. Start reading at `front_end.py`.
"""
