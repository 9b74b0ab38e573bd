"""Takes models out of their wrappers: DDP, FSDP 1, `DataParallel`, `torch.compile`, and mixed precision's."""

from __future__ import annotations

import sys

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from notebook_accel.train.models import compiling, precision


def unwrap(model: nn.Module) -> nn.Module:
    """The model in DDP, FSDP 1 or `DataParallel`, or the model itself."""
    wrappers: tuple[type[nn.Module], ...] = (DistributedDataParallel, DataParallel)
    if fsdp := sys.modules.get("torch.distributed.fsdp"):  # slow to import, and code that uses it has imported it
        wrappers += (fsdp.FullyShardedDataParallel,)
    while isinstance(model, wrappers):
        model = model.get_submodule("module")
    return model


def innermost(model: nn.Module) -> nn.Module:
    """The user's own model, also of one that is compiled."""
    return unwrap(compiling.inner(model))


def extract_model_from_parallel(
    model: nn.Module, keep_fp32_wrapper: bool = True, keep_torch_compile: bool = True, recursive: bool = False
) -> nn.Module:
    """Returns the user's own model, as `Accelerator.unwrap_model` does, without an `Accelerator`.

    Args:
        model: A model in any of torch's parallel wrappers, or in none.
        keep_fp32_wrapper: Whether its forward keeps running in mixed precision, with outputs in float32.
        keep_torch_compile: Whether a compiled model stays compiled.
        recursive: Whether the modules in it are also taken out of such wrappers, in place.
    """
    own = innermost(model)
    if recursive:
        for name, child in own.named_children():
            setattr(own, name, extract_model_from_parallel(child, keep_fp32_wrapper, keep_torch_compile, True))
    if not keep_fp32_wrapper:
        precision.remove(own)
    return compiling.like(own, model) if keep_torch_compile else own
