"""What to write instead of a keyword that `Accelerator` does not have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from notebook_accel.config.settings import SETTINGS
from notebook_accel.train.options.fsdp import FullyShardedDataParallelPlugin
from notebook_accel.train.options.parallelism import ParallelismConfig
from notebook_accel.train.options.plugins import (
    AORecipeKwargs,
    AutocastKwargs,
    DataLoaderConfiguration,
    DistributedDataParallelKwargs,
    GradientAccumulationPlugin,
    GradScalerKwargs,
    InitProcessGroupKwargs,
    ProfileKwargs,
    ProjectConfiguration,
    TorchDynamoPlugin,
    TorchTensorParallelPlugin,
)

_OPTIONS: tuple[tuple[str, type[Any]], ...] = (
    ("dataloader_config", DataLoaderConfiguration),
    ("project_config", ProjectConfiguration),
    ("gradient_accumulation_plugin", GradientAccumulationPlugin),
    ("fsdp_plugin", FullyShardedDataParallelPlugin),
    ("parallelism_config", ParallelismConfig),
    ("torch_tp_plugin", TorchTensorParallelPlugin),
    ("dynamo_plugin", TorchDynamoPlugin),
    ("kwargs_handlers", DistributedDataParallelKwargs),
    ("kwargs_handlers", GradScalerKwargs),
    ("kwargs_handlers", InitProcessGroupKwargs),
    ("kwargs_handlers", AutocastKwargs),
    ("kwargs_handlers", ProfileKwargs),
    ("kwargs_handlers", AORecipeKwargs),
)
"""The arguments of an `Accelerator` that take options, each with the class of the options."""
_OTHER_NAMES = {
    "fp16": "pass mixed_precision='fp16'",
    "bf16": "pass mixed_precision='bf16'",
    "device": "the launch chooses it. Pass device= to notebook_launcher, or cpu=True here",
    "ipex_plugin": "leave it out, because torch itself has the features of the extension",
}
"""Arguments of older versions of Accelerate, and what people try."""
_BY_LAUNCH = {row.argument for row in SETTINGS.values() if row.argument}


def advice(keyword: str, given: Mapping[str, Any]) -> str:
    """What to write instead of a keyword of `Accelerator`; empty if nothing is known about it."""
    if keyword in _OTHER_NAMES:
        return _OTHER_NAMES[keyword]
    value = f"{keyword}={given[keyword]!r:.60}"
    found = [_call(name, kind, value) for name, kind in _OPTIONS if keyword in {each.name for each in fields(kind)}]
    if found:
        return f"pass {' or '.join(found)}"
    return "pass it to notebook_launcher" if keyword in _BY_LAUNCH else ""


def _call(argument: str, kind: type[Any], value: str) -> str:
    call = f"{kind.__name__}({value})"
    return f"{argument}=[{call}]" if argument == "kwargs_handlers" else f"{argument}={call}"
