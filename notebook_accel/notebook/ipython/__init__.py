"""IPython as the place where a launch shows itself: the kernel's front end, cells, tracebacks, completion.

Start reading at `front_end.py`.
"""
