"""The parts of a training step: gradient accumulation, the optimizer, the scheduler, profiling.

Start reading at `accumulation.py`.
"""
