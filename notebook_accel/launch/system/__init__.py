"""The operating system: processes, the C library, descriptors, interfaces. Knows nothing of launches.

Start reading at `process_setup.py`: how a new process is set up.
"""
