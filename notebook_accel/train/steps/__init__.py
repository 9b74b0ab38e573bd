"""What a training step goes through: gradient accumulation, the optimizer, the scheduler, profiling.

Start reading at `accumulation.py`.
"""
