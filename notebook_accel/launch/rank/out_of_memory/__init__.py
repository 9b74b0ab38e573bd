"""What holds a rank's memory: looked for when it runs out of memory, and when it grows large.

examine.py       ─ what an exception that says so needs to be explained: start reading here
live_arrays.py   ─ the largest tensors and arrays that the user's frames can reach
assignments.py   ─ the line that assigned a name
cuda_snapshot.py ─ torch's snapshot of the memory of CUDA devices
growth.py        ─ when a process has grown so large that the system may end it
"""
