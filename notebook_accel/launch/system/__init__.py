"""The operating system: processes, the C library, descriptors, interfaces. Knows nothing of launches.

Start reading at `own_process.py`: what a new process takes for its own.
"""
