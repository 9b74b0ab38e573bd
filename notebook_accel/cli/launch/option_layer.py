"""The settings of a launch: puts the command line's options as a layer over the file and the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from notebook_accel.cli.launch.options import OPTIONS, Option
from notebook_accel.config import LaunchConfig, keys
from notebook_accel.config.layers import COMMAND_LINE, Layer, merge
from notebook_accel.config.translation import to_fields
from notebook_accel.errors import ConfigurationError

_EXCLUDE = (
    ("cpu", "multi_gpu"),
    ("cpu", "gpu_ids"),
    ("module", "no_python"),
    ("cells", "module"),
    ("cells", "no_python"),
    ("output", "module"),
    ("output", "no_python"),
)
_FROM_ZERO = ("machine_rank", "main_process_port", "max_restarts", "fsdp_min_num_params")
"""Numbers that may be 0."""
_FORMS = {
    "tee": (r"[0-3]|(\d:[0-3],)*\d:[0-3]", "1 for stdout, 2 for stderr, 3 for both, or by rank as in 0:3,1:1"),
    "rdzv_conf": (r"[^=,]+=[^=,]+(,[^=,]+=[^=,]+)*", "pairs such as timeout=900,join_timeout=600"),
}
"""The syntax that torch's launcher accepts, as a regular expression, and an example for messages."""
_KEY_BY_OPTION = {"cpu": "use_cpu"}
"""Options whose key in the file has another name."""


def merged(options: Mapping[str, Any], below: Sequence[Layer]) -> LaunchConfig:
    """The settings of a launch.

    Args:
        options: The given options of the command line, by name.
        below: The layers of the file and the environment.

    Raises:
        ConfigurationError: Options that exclude each other, have no effect, or have a value that makes no sense.
    """
    for one, other in _EXCLUDE:
        if options.get(one) and options.get(other):
            raise ConfigurationError(f"--{one} and --{other} exclude each other: leave one of them out")
    config = merge([*below, _layer(options, merge(below))])
    has = {**options, "use_fsdp": config.strategy == "fsdp", "dynamo_backend": config.dynamo_backend != "no"}
    for option in OPTIONS:
        if option.name in options and option.only_with and not has.get(option.only_with):
            raise ConfigurationError(f"--{option.name} has no effect without --{option.only_with}")
    return config


def _layer(options: Mapping[str, Any], below: LaunchConfig) -> Layer:
    """The options that are settings, as a layer."""
    found: dict[str, Any] = {}
    for option in OPTIONS:
        if option.name in options:
            _check(option, options[option.name])
            key = _KEY_BY_OPTION.get(option.name, option.name)
            if key in keys.KEYS and not option.moot:
                value = options[option.name]
                found[key] = keys.check(key, keys.KEYS[key].read(str(value)), f"--{option.name}")
    if options.get("use_fsdp"):
        found["distributed_type"] = "FSDP"
    size = _local_size(found.pop("num_processes", None), options, below)
    fields = to_fields(found)
    values = {name: value for name, (value, _) in fields.items()}
    locations = {name: f"--{_OPTION_BY_KEY.get(key, key)}" for name, (_, key) in fields.items()}
    if size is not None:
        values["num_processes"] = size
        locations["num_processes"] = "--num_processes" if "num_processes" in options else "--num_machines"
    if options.get("multi_gpu") or options.get("gpu_ids") == "all":
        values["device"] = "cuda"
        locations["device"] = "--multi_gpu" if options.get("multi_gpu") else "--gpu_ids"
    if options.get("gpu_ids") == "all":
        values["gpus"] = None
    if "num_machines" in options:
        values["cluster"] = ""  # the machines are this one and others, where the user runs the same command
    if "num_cpu_threads_per_process" in options:
        values["env"] = {"OMP_NUM_THREADS": str(options["num_cpu_threads_per_process"])}
    return Layer(COMMAND_LINE, values, locations)


_OPTION_BY_KEY = {
    **{key: name for name, key in _KEY_BY_OPTION.items()},
    "distributed_type": "use_fsdp",
    "fsdp_config": "use_fsdp",
    "dynamo_config": "dynamo_backend",
}


def _local_size(total: int | None, options: Mapping[str, Any], below: LaunchConfig) -> int | None:
    """The ranks of this node. The option and the file count those of all nodes, which the command line may change."""
    nodes = options.get("num_machines", below.num_nodes)
    if total is None and below.num_processes is not None and "num_machines" in options:
        total = below.num_processes * (1 if below.cluster else below.num_nodes)
    if total is None:
        return None
    if total % nodes:
        raise ConfigurationError(
            f"--num_processes {total} counts the ranks of all machines, but {total} is not a multiple of "
            f"--num_machines {nodes}"
        )
    return int(total // nodes)


def _check(option: Option, value: Any) -> None:
    """Refuses a value that makes no sense or would have no effect."""
    name = f"--{option.name}"
    if option.moot and not keys.has_no_effect(option.name, value, name):
        raise ConfigurationError(f"{name} {value} would have no effect: FSDP2 does not have this choice. Leave it out.")
    if option.name == "fsdp_version" and value != 2:
        raise ConfigurationError(
            f"--fsdp_version {value}: models are sharded by FSDP2, the only supported version. Leave it out."
        )
    form, example = _FORMS.get(option.name, ("", ""))
    if form and not re.fullmatch(form, value):
        raise ConfigurationError(f"{name} {value}: write {example}")
    if option.type is float and not value > 0:
        raise ConfigurationError(f"{name} {value}: must be above 0")
    least = 0 if option.name in _FROM_ZERO else 1
    if option.type is int and value < least:
        raise ConfigurationError(f"{name} {value}: must be at least {least}")
    if option.name == "gpu_ids" and value != "all":
        entries = [each.strip() for each in value.split(",")]
        if not all(each.isdecimal() for each in entries) or len(set(entries)) < len(entries):
            raise ConfigurationError(f"--gpu_ids {value}: write numbers such as 0,2, each once, or all")
