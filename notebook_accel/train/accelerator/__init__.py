"""`Accelerator`: the facade between a plain training loop and the ranks and devices it runs on.

Start reading at `accelerator.py` (`prepare`). Below it, `stepping.py` and `saving.py` hold the methods for steps and
for what a run leaves behind; `base.py` has the constructor; `arguments.py` checks its arguments.
"""
