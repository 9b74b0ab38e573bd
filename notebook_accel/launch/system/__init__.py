"""The operating system: processes, the C library, descriptors, interfaces. Knows nothing of launches.

Start reading at `own_process.py`: how a new process is set up.
"""
