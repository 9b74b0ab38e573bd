"""Training on whatever ranks and devices there are. Everything here may import torch, and nothing of the kernel.

A folder imports only from those below it; each folder's `__init__` says where to start reading.

    accelerator/   `Accelerator`, the class that users hold: it delegates to the folders below
    steps/         what one training step goes through: accumulation, the optimizer, the scheduler, profiling
    strategies/    how models and optimizers are spread over the ranks: one device, DDP, FSDP2, tensor parallel, XLA
    data/          loaders: which samples each rank gets, and on which device
    checkpoints/   what a run saves and resumes from
    trackers/      experiment trackers: TensorBoard, Weights & Biases, MLflow, and others
    ranks/         this process among the ranks: its environment, device and process group, and the collectives
    models/        what happens to a model: precision, compilation, checks
    options/       enums and dataclasses that users pass to `Accelerator(...)`
    tensors/       nested batches as trees, tensors as bytes
"""
