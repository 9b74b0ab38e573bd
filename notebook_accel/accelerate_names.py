"""Modules with the names of Accelerate's: an import from `accelerate.state` is ported by changing its first word.

`notebook_accel.utils` has a file of its own. The others have none: they are empty, and look up each name in this
package's exports when it is accessed.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

_PACKAGE = __package__
_NAMES = {
    "accelerator": ("Accelerator",),
    "data_loader": ("SeedableRandomSampler", "prepare_data_loader", "skip_first_batches"),
    "launchers": ("debug_launcher", "notebook_launcher"),
    "local_sgd": ("LocalSGD",),
    "logging": ("get_logger",),
    "optimizer": ("AcceleratedOptimizer",),
    "scheduler": ("AcceleratedScheduler",),
    "state": ("AcceleratorState", "DistributedType", "GradientState", "PartialState"),
    "tracking": ("GeneralTracker", "on_main_process"),
    "utils.dataclasses": (
        "AutocastKwargs", "DDPCommunicationHookType", "DataLoaderConfiguration", "DistributedDataParallelKwargs",
        "DistributedType", "DynamoBackend", "FullyShardedDataParallelPlugin", "GradScalerKwargs",
        "GradientAccumulationPlugin", "InitProcessGroupKwargs", "KwargsHandler", "LoggerType", "PrecisionType",
        "ProfileKwargs", "ProjectConfiguration", "RNGType", "TorchDynamoPlugin", "TorchTensorParallelPlugin",
    ),
    "utils.memory": ("clear_device_cache", "find_executable_batch_size", "release_memory", "should_reduce_batch_size"),
    "utils.operations": (
        "DistributedOperationException", "broadcast", "broadcast_object_list", "concatenate", "find_batch_size",
        "gather", "gather_object", "pad_across_processes", "recursively_apply", "reduce", "send_to_device",
        "slice_tensors",
    ),
    "utils.other": ("load", "save"),
    "utils.random": ("set_seed", "synchronize_rng_state", "synchronize_rng_states"),
}  # fmt: skip
"""The names that users import from each module."""


class AccelerateModule(ModuleType):
    """A module that looks up names in this package's exports."""

    def __getattr__(self, name: str) -> Any:
        # Not only imports come here: pickle searches all modules for the one that defines an object.
        if name not in _NAMES[self.__name__.removeprefix(f"{_PACKAGE}.")]:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        exported = name in sys.modules[_PACKAGE].__all__
        return getattr(importlib.import_module(_PACKAGE if exported else f"{_PACKAGE}.utils"), name)


def install() -> None:
    """Adds the modules to `sys.modules`."""
    for name in _NAMES:
        sys.modules[f"{_PACKAGE}.{name}"] = AccelerateModule(f"{_PACKAGE}.{name}")
