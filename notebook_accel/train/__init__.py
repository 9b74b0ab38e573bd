"""Training on whatever ranks and devices there are. Everything in here may import torch, and nothing of the kernel.

The flow, one file each:

    accelerator.py ─ what the user holds: asks the others, names no strategy. run.py has its settings, stepping.py and
                     saving.py the parts that steps and checkpoints go through
    environment.py ─ what the launch has told this process
    place.py       ─ joins the group, and takes the rank's device
    state.py       ─ which rank this is; what a training loop is at
    strategies/    ─ how models and optimizers live on the ranks: single, DDP, FSDP2, tensor parallel
    data/          ─ which samples each rank gets
    precision.py, gradients.py, optimizer.py, scheduler.py ─ the parts of a step
    collectives.py, messages.py, tree.py ─ nested batches, and how ranks exchange them
    checkpoint.py, weights.py, trackers/ ─ what stays when a run has ended
"""
