"""What to write instead of a keyword that `notebook_launcher` does not have."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from notebook_accel.config.keys import KEYS
from notebook_accel.config.row import Setting
from notebook_accel.config.settings import SETTINGS

_FOR_THE_ACCELERATOR = """dataloader_config dynamo_plugin fsdp_plugin gradient_accumulation_plugin kwargs_handlers
    log_with parallelism_config project_config project_dir torch_tp_plugin"""
_PLUGINS = {
    "fsdp": "fsdp_plugin=FullyShardedDataParallelPlugin(...)",
    "dynamo": "dynamo_plugin=TorchDynamoPlugin(...)",
    "parallelism": "parallelism_config=ParallelismConfig(...)",
}
"""The argument of an `Accelerator` that has the same settings as the keys of a field."""
_OTHER_NAMES = {
    **dict.fromkeys(("cpu", "use_cpu"), "pass device='cpu'"),
    **dict.fromkeys(("fp16", "use_fp16"), "pass mixed_precision='fp16'"),
    **dict.fromkeys(("bf16", "use_bf16"), "pass mixed_precision='bf16'"),
    **dict.fromkeys(("nprocs", "nproc_per_node", "num_gpus", "world_size"), "pass num_processes"),
    "nnodes": "pass num_nodes",
    "master_port": "pass use_port",
    "start_method": "leave it out, because ranks are forked from a process that has not used a device",
    **dict.fromkeys(_FOR_THE_ACCELERATOR.split(), "pass it to the Accelerator that the function creates"),
}
"""Names in Accelerate, in its older versions, and in torchrun."""


def advice(keyword: str, given: Mapping[str, Any]) -> str:
    """What to write instead of a keyword of `notebook_launcher`; empty if nothing is known about it."""
    if _is_parameter(keyword, given.get("function")):
        return f"it is a parameter of the function, so pass it in kwargs={{{keyword!r}: ...}}"
    if keyword in _OTHER_NAMES:
        return _OTHER_NAMES[keyword]
    row = KEYS.get(keyword) or SETTINGS.get(keyword)
    return "" if row is None else _setting(row)


def debug_advice(keyword: str, given: Mapping[str, Any]) -> str:
    """The same for `debug_launcher`."""
    found = advice(keyword, given)
    arguments = {row.argument for row in SETTINGS.values()} | {"kwargs", "block", "detach", "in_process"}
    if found or keyword in arguments:
        return "debug_launcher has only Accelerate's arguments. Call notebook_launcher(..., device='cpu')" + (
            f"; there, {found}" if found else ", which has it"
        )
    return ""


def _setting(row: Setting) -> str:
    own = SETTINGS.get(row.field, row)
    if own.argument:
        return f"pass {own.argument}"
    if own.magic:
        return f"set it with %accelerate {own.magic[-1]}, or in the configuration file"
    in_code = f", or pass {_PLUGINS[row.field]} to the Accelerator" if row.field in _PLUGINS else ""
    return f"set {row.key} in the configuration file{in_code}"


def _is_parameter(keyword: str, function: Any) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # not a function, or one whose parameters are not known
        return False
    return keyword in parameters and parameters[keyword].kind.name in ("POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY")
