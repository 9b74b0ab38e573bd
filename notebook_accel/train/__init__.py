"""Training on any number of ranks, on any device. All modules here may import torch, but nothing from the kernel.

A folder imports only from those below it; each folder's `__init__` says where to start reading.

    accelerator/   `Accelerator`, the class for users, which delegates to the folders below
    helpers/       small functions that code written for Accelerate imports
    steps/         the parts of a training step: accumulation, the optimizer, the scheduler, profiling
    strategies/    how models and optimizers are spread over the ranks: one device, DDP, FSDP2, tensor parallel, XLA
    data/          loaders: which samples each rank gets, and on which device
    checkpoints/   saving a run and resuming it
    trackers/      experiment trackers: TensorBoard, Weights & Biases, MLflow, and others
    ranks/         this process as a rank: its environment, device and process group, and the collectives
    step_timing.py measures the parts of a training step, and what slows it down
    models/        preparing models: precision, compilation, checks
    options/       enums and dataclasses that users pass to `Accelerator(...)`
    tensors/       nested batches as trees, tensors as bytes
"""
