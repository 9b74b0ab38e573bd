"""The settings of a launch: puts the command line's options as a layer over the file and the environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from notebook_accel.cli.launch.options import OPTIONS
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
    before = merge(below)
    config = merge([*below, _layer(options, before)])
    has = {**options, "use_fsdp": config.strategy == "fsdp", "dynamo_backend": config.dynamo_backend != "no"}
    has["use_parallelism_config"] = options.get("use_parallelism_config") or before.parallelism
    for option in OPTIONS:
        if option.name in options and option.only_with and not has.get(option.only_with):
            raise ConfigurationError(f"--{option.name} has no effect without --{option.only_with}")
    if options.get("use_parallelism_config") and not config.parallelism:
        raise ConfigurationError(
            "--use_parallelism_config has no effect without a size, such as --parallelism_config_tp_size 2"
        )
    return config


def _layer(options: Mapping[str, Any], below: LaunchConfig) -> Layer:
    """The options that are settings, as a layer."""
    found: dict[str, Any] = {}
    for option in OPTIONS:
        if option.name in options:
            name, value = f"--{option.name}", options[option.name]
            if option.key:
                found[option.key] = keys.check(option.key, value, name)
            else:
                option.kind.parse(name, value)
    keys.refuse_fsdp1_keys(found)
    if options.get("use_fsdp"):
        found["distributed_type"] = "FSDP"
    chosen = (found.get("gpu_ids") or "").split(",")
    if len(set(chosen)) < len(chosen):
        raise ConfigurationError(f"--gpu_ids {options['gpu_ids']}: write numbers such as 0,2, each once, or all")
    size = _local_size(found, below)
    fields = to_fields(found)
    values = {name: value for name, (value, _) in fields.items()}
    locations = {name: f"--{_OPTION_BY_KEY[key]}" for name, (_, key) in fields.items()}
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
    **{option.key: option.name for option in OPTIONS},
    "distributed_type": "use_fsdp",
    "fsdp_config": "use_fsdp",
    "dynamo_config": "dynamo_backend",
    "parallelism_config": "use_parallelism_config",
}


def _local_size(found: dict[str, Any], below: LaunchConfig) -> int | None:
    """The ranks of this node. The option and the file count those of all nodes, which the command line may change."""
    total, nodes = found.pop("num_processes", None), found.get("num_machines", below.num_nodes)
    if total is None and below.num_processes is not None and "num_machines" in found:
        total = below.num_processes * (1 if below.cluster else below.num_nodes)
    if total is None:
        return None
    if total % nodes:
        raise ConfigurationError(
            f"--num_processes {total} counts the ranks of all machines, but {total} is not a multiple of "
            f"--num_machines {nodes}"
        )
    return int(total // nodes)
