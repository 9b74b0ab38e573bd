"""Distributed training from a notebook: a function defined in a cell runs on every device.

from notebook_accel import Accelerator, notebook_launcher
results = notebook_launcher(train, num_processes=2)
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from notebook_accel import accelerate_names

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from notebook_accel.errors import (
        CheckpointError,
        ConfigurationError,
        HardwareError,
        JobCancelledError,
        JobLostError,
        LaunchError,
        NotebookAccelError,
        PayloadError,
        RankError,
        RankTimeoutError,
    )
    from notebook_accel.launch.driver.attach import attach, jobs
    from notebook_accel.launch.driver.launcher import debug_launcher, notebook_launcher
    from notebook_accel.launch.job.job import Job
    from notebook_accel.launch.rank.report import report
    from notebook_accel.notebook.views import set_view
    from notebook_accel.train.accelerator.accelerator import Accelerator
    from notebook_accel.train.accelerator.local_sgd import LocalSGD
    from notebook_accel.train.checkpoints.weights import SAFE_WEIGHTS_NAME, load_checkpoint_in_model
    from notebook_accel.train.data import (
        SeedableRandomSampler,
        prepare_data_loader,
        skip_first_batches,
    )
    from notebook_accel.train.models.batch_size import find_executable_batch_size, release_memory
    from notebook_accel.train.options.fsdp import FullyShardedDataParallelPlugin
    from notebook_accel.train.options.plugins import (
        AORecipeKwargs,
        AutocastKwargs,
        DataLoaderConfiguration,
        DDPCommunicationHookType,
        DistributedDataParallelKwargs,
        DistributedType,
        DynamoBackend,
        GradientAccumulationPlugin,
        GradScalerKwargs,
        InitProcessGroupKwargs,
        LoggerType,
        PrecisionType,
        ProfileKwargs,
        ProjectConfiguration,
        RNGType,
        TorchDynamoPlugin,
        TorchTensorParallelPlugin,
    )
    from notebook_accel.train.ranks.collectives import (
        DistributedOperationException,
        broadcast,
        broadcast_object_list,
        gather,
        gather_object,
        pad_across_processes,
        reduce,
    )
    from notebook_accel.train.ranks.gradient_state import GradientState
    from notebook_accel.train.ranks.logging import get_logger
    from notebook_accel.train.ranks.seeds import set_seed, synchronize_rng_states
    from notebook_accel.train.ranks.state import AcceleratorState, PartialState
    from notebook_accel.train.steps.optimizer import AcceleratedOptimizer
    from notebook_accel.train.steps.scheduler import AcceleratedScheduler
    from notebook_accel.train.tensors.tree import concatenate, find_batch_size, send_to_device
    from notebook_accel.train.trackers import (
        GeneralTracker,
        on_main_process,
    )

__version__ = "0.1.0"
__all__ = [
    "SAFE_WEIGHTS_NAME",
    "AORecipeKwargs",
    "AcceleratedOptimizer",
    "AcceleratedScheduler",
    "Accelerator",
    "AcceleratorState",
    "AutocastKwargs",
    "CheckpointError",
    "ConfigurationError",
    "DDPCommunicationHookType",
    "DataLoaderConfiguration",
    "DistributedDataParallelKwargs",
    "DistributedOperationException",
    "DistributedType",
    "DynamoBackend",
    "FullyShardedDataParallelPlugin",
    "GeneralTracker",
    "GradScalerKwargs",
    "GradientAccumulationPlugin",
    "GradientState",
    "HardwareError",
    "InitProcessGroupKwargs",
    "Job",
    "JobCancelledError",
    "JobLostError",
    "LaunchError",
    "LocalSGD",
    "LoggerType",
    "NotebookAccelError",
    "PartialState",
    "PayloadError",
    "PrecisionType",
    "ProfileKwargs",
    "ProjectConfiguration",
    "RNGType",
    "RankError",
    "RankTimeoutError",
    "SeedableRandomSampler",
    "TorchDynamoPlugin",
    "TorchTensorParallelPlugin",
    "attach",
    "broadcast",
    "broadcast_object_list",
    "concatenate",
    "debug_launcher",
    "find_batch_size",
    "find_executable_batch_size",
    "gather",
    "gather_object",
    "get_logger",
    "jobs",
    "load_checkpoint_in_model",
    "notebook_launcher",
    "on_main_process",
    "pad_across_processes",
    "prepare_data_loader",
    "reduce",
    "release_memory",
    "report",
    "send_to_device",
    "set_seed",
    "set_view",
    "skip_first_batches",
    "synchronize_rng_states",
]
_HOMES = {
    "errors": [
        "CheckpointError",
        "ConfigurationError",
        "HardwareError",
        "JobCancelledError",
        "JobLostError",
        "LaunchError",
        "NotebookAccelError",
        "PayloadError",
        "RankError",
        "RankTimeoutError",
    ],
    "launch.driver.attach": ["attach", "jobs"],
    "launch.job.job": ["Job"],
    "launch.driver.launcher": ["debug_launcher", "notebook_launcher"],
    "launch.rank.report": ["report"],
    "notebook.views": ["set_view"],
    "train.accelerator.accelerator": ["Accelerator"],
    "train.ranks.collectives": [
        "DistributedOperationException",
        "broadcast",
        "broadcast_object_list",
        "gather",
        "gather_object",
        "pad_across_processes",
        "reduce",
    ],
    "train.data": ["SeedableRandomSampler", "prepare_data_loader", "skip_first_batches"],
    "train.options.fsdp": ["FullyShardedDataParallelPlugin"],
    "train.accelerator.local_sgd": ["LocalSGD"],
    "train.ranks.logging": ["get_logger"],
    "train.models.batch_size": ["find_executable_batch_size", "release_memory"],
    "train.options.plugins": [
        "AORecipeKwargs",
        "AutocastKwargs",
        "DDPCommunicationHookType",
        "DataLoaderConfiguration",
        "DistributedDataParallelKwargs",
        "DistributedType",
        "DynamoBackend",
        "GradScalerKwargs",
        "GradientAccumulationPlugin",
        "InitProcessGroupKwargs",
        "LoggerType",
        "PrecisionType",
        "ProfileKwargs",
        "ProjectConfiguration",
        "RNGType",
        "TorchDynamoPlugin",
        "TorchTensorParallelPlugin",
    ],
    "train.steps.optimizer": ["AcceleratedOptimizer"],
    "train.ranks.seeds": ["set_seed", "synchronize_rng_states"],
    "train.steps.scheduler": ["AcceleratedScheduler"],
    "train.ranks.gradient_state": ["GradientState"],
    "train.ranks.state": ["AcceleratorState", "PartialState"],
    "train.trackers": ["GeneralTracker", "on_main_process"],
    "train.tensors.tree": ["concatenate", "find_batch_size", "send_to_device"],
    "train.checkpoints.weights": ["SAFE_WEIGHTS_NAME", "load_checkpoint_in_model"],
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Imports a name at its first use: the kernel must not import torch, nor a rank the kernel's modules."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: InteractiveShell) -> None:
    """`%load_ext notebook_accel`: registers the magics, and starts the fork server in advance."""
    from notebook_accel.launch import engines

    engines.default().warm()  # before the rest is imported: it takes the longest, and goes on beside this process
    from notebook_accel import notebook

    notebook.attach(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """`%unload_ext notebook_accel`: removes the magics; launches still work."""
    from notebook_accel.notebook.magics import accelerate

    accelerate.unregister(shell)


def _attach_to_shell() -> None:
    """Loads the extension when imported in a notebook's kernel; elsewhere nothing starts before its first use."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return
    if getattr(shell, "kernel", None) is not None:
        load_ipython_extension(shell)
        return
    from notebook_accel import notebook

    notebook.attach(shell)


accelerate_names.install()
_attach_to_shell()
