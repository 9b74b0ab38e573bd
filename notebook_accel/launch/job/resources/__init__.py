"""What ranks use of their machines, as users read it.

usage_text.py     ─ how busy a rank and its GPU are, and what is wrong with the GPU
gpu_counters.py   ─ the errors of GPUs since they were first read
memory_text.py    ─ what held a rank's memory when it ran out, and the most of each phase
"""
