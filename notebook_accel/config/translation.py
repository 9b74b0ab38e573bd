"""Translates the keys of the file to the fields of `LaunchConfig`, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from notebook_accel.config.keys import DISTRIBUTED, FSDP1_KEYS
from notebook_accel.config.settings import SETTINGS, LaunchConfig
from notebook_accel.errors import ConfigurationError

_SAME = [row for row in SETTINGS.values() if row.key and row.field != "num_processes"]
"""Settings whose value is the value of their key, unchanged."""


def to_fields(keys: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    """The fields of `LaunchConfig` that keys of the file set: the value of each, and the key that set it.

    Raises:
        ConfigurationError: Some keys contradict each other.
    """
    found: dict[str, tuple[Any, str]] = {}
    kind = keys.get("distributed_type")
    for name, value in DISTRIBUTED.get(kind or "", {}).items():
        found[name] = (value, "distributed_type")
    if keys.get("use_cpu"):
        _set(found, "device", "cpu", "use_cpu")
    for row in _SAME:
        if keys.get(row.key) is not None:
            _set(found, row.field, keys[row.key], row.key)
    if keys.get("num_processes") is not None:
        _set(found, "num_processes", _processes_per_launch(keys), "num_processes")
    if keys.get("gpu_ids") is not None:
        chosen = tuple(map(int, keys["gpu_ids"].split(",")))
        if "num_processes" in found:
            chosen = chosen[: found["num_processes"][0]]  # as in Accelerate, whose ranks use the first of them
        _set(found, "gpus", chosen, "gpu_ids")
    fsdp_keys = {key: value for key, value in keys.items() if key.startswith("fsdp_") and value is not None}
    fsdp = {key: value for key, value in fsdp_keys.items() if key not in FSDP1_KEYS}
    if fsdp and kind in (None, "FSDP"):  # otherwise Accelerate ignores the section, too
        found["fsdp"] = (fsdp, "fsdp_config")
    if fsdp != fsdp_keys and kind == "FSDP":
        found["notices"] = ((_fsdp1_notice(fsdp_keys),), "fsdp_config")
    dynamo = {key: keys[key] for key in keys if key.startswith("dynamo_") and key != "dynamo_backend"}
    dynamo = {key: value for key, value in dynamo.items() if value is not None}
    if dynamo:
        found["dynamo"] = (dynamo, "dynamo_config")
    prefix = "parallelism_config_"
    sizes = {key: value for key, value in keys.items() if key.startswith(prefix) and value is not None}
    if sizes:
        found["parallelism"] = (sizes, "parallelism_config")
    return found


def _fsdp1_notice(fsdp_keys: Mapping[str, Any]) -> str:
    """The notice for a file that was written for FSDP1."""
    others = [key for key in FSDP1_KEYS if key in fsdp_keys and key != "fsdp_version"]
    passed_over = f" {', '.join(others)} have no effect, because FSDP2 does not have them." if others else ""
    return (
        f"the settings are for FSDP1, but models are sharded by FSDP2, which needs no code changes.{passed_over} "
        "To avoid this notice, write fsdp_version: 2, or run notebook-accel config update"
    )


def _processes_per_launch(keys: Mapping[str, Any]) -> int:
    """The file counts the ranks on all nodes; a launch counts those on its own node, or all of them with a cluster."""
    if keys.get("cluster"):
        return int(keys["num_processes"])
    total, nodes = int(keys["num_processes"]), int(keys.get("num_machines") or 1)
    if total % nodes:
        raise ConfigurationError(f"num_processes: {total} can't be divided equally among num_machines: {nodes}")
    return total // nodes


def _set(found: dict[str, tuple[Any, str]], name: str, value: Any, key: str) -> None:
    if name in found and found[name][0] != value:
        other = found[name][1]
        raise ConfigurationError(f"{key} contradicts {other}: one says {value!r}, the other {found[name][0]!r}")
    found[name] = (value, key)


@dataclass(frozen=True)
class SourcedValue:
    """The value of one key of the file, and where it came from."""

    value: Any
    field: str
    """The field of `LaunchConfig` that it comes from."""
    source: str
    """Where the field's value came from."""


def from_config(config: LaunchConfig) -> dict[str, SourcedValue]:
    """The keys of a file that would set this configuration."""
    keys: dict[str, tuple[Any, str]] = {
        row.key: (value, row.field)
        for row in _SAME
        for value in [getattr(config, row.field)]
        if row.field in config.sources or value != row.default
    }
    if config.num_processes is not None:
        nodes = 1 if config.cluster else config.num_nodes
        keys["num_processes"] = (config.num_processes * nodes, "num_processes")
    if config.gpus is not None:
        keys["gpu_ids"] = (",".join(map(str, config.gpus)), "gpus")
    kind, name = _distributed_type(config)
    if kind:
        keys["distributed_type"] = (kind, name)
    if config.device == "cpu":
        keys["use_cpu"] = (True, "device")
    if config.device == "cpu" or DISTRIBUTED.get(kind, {}).get("device") == config.device:
        keys.pop("device", None)
    for name in ("fsdp", "dynamo", "parallelism"):
        keys |= {key: (value, name) for key, value in getattr(config, name).items()}
    return {
        key: SourcedValue(value, name, str(config.sources.get(name, "default"))) for key, (value, name) in keys.items()
    }


def _distributed_type(config: LaunchConfig) -> tuple[str, str]:
    """The value of `distributed_type`, and the field that it is derived from."""
    if config.strategy == "fsdp":
        return "FSDP", "strategy"
    if config.strategy == "spmd":
        return "SPMD", "strategy"
    if config.num_processes == 1 and config.num_nodes == 1:
        return "NO", "num_processes"
    if config.device == "cpu":
        return "MULTI_CPU", "device"
    if config.device == "tpu":
        return "XLA", "device"
    if config.device == "cuda" or config.gpus:
        return "MULTI_GPU", "device" if config.device else "gpus"
    return "", ""
