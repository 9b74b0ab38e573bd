"""The parts of a training step: gradient accumulation, the optimizer, the scheduler, profiling.

accumulation.py ─ after which batches the optimizer steps; start reading here
optimizer.py    ─ a prepared optimizer
scheduler.py    ─ a prepared scheduler
checks.py       ─ warns of what was not prepared, cannot be resumed, or was moved
replicas.py     ─ compares what ranks that train one model have in common
profiling.py    ─ profiles a part of the training
tunables.py     ─ numbers that can be changed while the training runs
"""
