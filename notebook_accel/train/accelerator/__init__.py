"""`Accelerator`: the facade between a plain training loop and the ranks and devices that it runs on.

accelerator.py     ─ `Accelerator`; start reading here
prepared.py        ─ the objects that it has prepared
arguments.py       ─ checks the arguments of the constructor
local_sgd.py       ─ `LocalSGD`

The loop over `Accelerator.epochs`:

epoch_loop.py      ─ saves checkpoints on the way, and continues from the last one
resuming.py        ─ continues a training run from a checkpoint, and compares its loaders with those saved
point_agreement.py ─ has all ranks save after the same step
"""
