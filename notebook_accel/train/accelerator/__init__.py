"""`Accelerator`: the facade between a plain training loop and the ranks and devices it runs on.

Start reading at `accelerator.py` (`prepare`). Below it, `training_step.py` has the methods for steps and `saving.py`
those that save; `epoch_loop.py` is the loop that saves by itself, `resuming.py` continues it from a checkpoint, and
`resumable.py` has what it says first. `base.py` has the constructor; `arguments.py` checks its arguments.
"""
