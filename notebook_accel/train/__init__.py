"""Training on whatever ranks and devices there are. Everything in here may import torch, and nothing of the kernel.

The flow, one file each:

    accelerator.py ─ what the user holds: asks the others, names no strategy
    environment.py ─ what the launch has told this process
    state.py       ─ which rank this is, on which device; what a training loop is at
    strategies/    ─ how models and optimizers live on the ranks: single, DDP, FSDP2, tensor parallel
    data/          ─ which samples each rank gets
    precision.py, gradients.py, optimizer.py, scheduler.py ─ the parts of a step
    collectives.py, tree.py ─ nested batches, and how ranks exchange them
    checkpoint.py, weights.py, tracking/ ─ what stays when a run has ended
"""
