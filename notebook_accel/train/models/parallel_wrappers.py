"""Takes models out of torch's parallel wrappers."""

from __future__ import annotations

import sys

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel


def unwrap(model: nn.Module) -> nn.Module:
    """The model in DDP, FSDP 1 or `DataParallel`, or the model itself."""
    wrappers: tuple[type[nn.Module], ...] = (DistributedDataParallel, DataParallel)
    if fsdp := sys.modules.get("torch.distributed.fsdp"):  # slow to import, and code that uses it has imported it
        wrappers += (fsdp.FullyShardedDataParallel,)
    while isinstance(model, wrappers):
        model = model.get_submodule("module")
    return model
