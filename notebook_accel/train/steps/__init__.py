"""The parts of a training step: gradient accumulation, the optimizer, the scheduler, profiling.

accumulation.py ─ after which batches the optimizer steps; start reading here
optimizer.py    ─ a prepared optimizer
scheduler.py    ─ a prepared scheduler
checks.py       ─ warns of what was not prepared, cannot be resumed, or was moved
profiling.py    ─ profiles a part of the training
tunable.py      ─ a number that can be changed while the training runs
tunables.py     ─ all of them, for the panel and for checkpoints
"""
