"""Writes a configuration file for this machine, as a notebook for Accelerate does before its first launch."""

from __future__ import annotations

import os
from pathlib import Path

from notebook_accel import hardware
from notebook_accel.config import PRECISIONS, file
from notebook_accel.errors import ConfigurationError

# Accelerate's constants, for code that asks whether there is a configuration.
cache_dir = str(file.location(os.environ).parent)
default_config_file = default_yaml_config_file = str(file.location(os.environ))
default_json_config_file = str(file.location(os.environ).with_suffix(".json"))


def write_basic_config(mixed_precision: str = "no", save_location: str | os.PathLike[str] | None = None) -> Path | bool:
    """Writes a configuration file for this machine's devices. Launches work without one, too.

    Args:
        mixed_precision: `no`, `fp16`, `bf16` or `fp8`.
        save_location: The file; by default the one that launches read.

    Returns:
        The file; or `False` if it existed, and was left as it is.

    Raises:
        ConfigurationError: There is no such precision, or the file cannot be written.
    """
    path = file.location(os.environ) if save_location is None else Path(save_location)
    if path.exists():
        print(f"{path} exists, and stays as it is: change it with `notebook-accel config`, or remove it first.")  # noqa: T201
        return False
    precision = mixed_precision.lower()
    if precision not in PRECISIONS:
        raise ConfigurationError(f"mixed_precision={mixed_precision!r} must be one of {', '.join(PRECISIONS)}")
    found = hardware.detect(os.environ)
    keys: dict[str, object] = {"mixed_precision": precision}
    if found.kind != "tpu":
        keys |= {"num_processes": max(1, len(found.gpus)), "use_cpu": found.kind == "cpu"}
    file.write(path, keys)
    return path
