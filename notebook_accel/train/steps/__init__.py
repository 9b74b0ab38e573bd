"""What a step of training goes through: accumulation, the optimizer, the scheduler, local SGD, profiling.

Start reading at `accumulation.py`.
"""
