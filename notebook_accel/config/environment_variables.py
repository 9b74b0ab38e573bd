"""Settings in environment variables: those that users set, and those that a launch sets for its ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from notebook_accel.config import checks, keys
from notebook_accel.config.layers import Layer
from notebook_accel.config.settings import SETTINGS, LaunchConfig
from notebook_accel.errors import ConfigurationError, closest

PREFIX = "NOTEBOOK_ACCEL_"
FILE_VARIABLE = "NOTEBOOK_ACCEL_CONFIG_FILE"
_FLAG_VARIABLES = {"ACCELERATE_USE_CPU": ("device", "cpu"), "ACCELERATE_USE_FSDP": ("strategy", "fsdp")}
"""Accelerate's variables that are flags, and the field and value that each sets."""
FSDP_VARIABLES = {
    "fsdp_reshard_after_forward": "FSDP_RESHARD_AFTER_FORWARD",
    "fsdp_sharding_strategy": "FSDP_SHARDING_STRATEGY",
    "fsdp_offload_params": "FSDP_OFFLOAD_PARAMS",
    "fsdp_auto_wrap_policy": "FSDP_AUTO_WRAP_POLICY",
    "fsdp_transformer_layer_cls_to_wrap": "FSDP_TRANSFORMER_CLS_TO_WRAP",
    "fsdp_min_num_params": "FSDP_MIN_NUM_PARAMS",
    "fsdp_state_dict_type": "FSDP_STATE_DICT_TYPE",
    "fsdp_activation_checkpointing": "FSDP_ACTIVATION_CHECKPOINTING",
}
"""How FSDP shards: the keys of Accelerate's file, and its environment variables."""
DYNAMO_VARIABLES = {
    "dynamo_mode": "ACCELERATE_DYNAMO_MODE",
    "dynamo_use_fullgraph": "ACCELERATE_DYNAMO_USE_FULLGRAPH",
    "dynamo_use_dynamic": "ACCELERATE_DYNAMO_USE_DYNAMIC",
}
"""How models are compiled: likewise."""
_OWN_VARIABLES = [variable for setting in SETTINGS for variable in setting.variables if variable.startswith(PREFIX)]
_SIMILAR = 0.8
"""Similarity from which on a name counts as misspelled. Other variables, such as NOTEBOOK_ACCEL_VIEW, are below it."""


def from_environment(environ: Mapping[str, str]) -> Layer:
    """The layer of the environment.

    Raises:
        ConfigurationError: A value is not valid, or a name is nearly that of a variable of this package.
    """
    _check_names(environ)
    values: dict[str, Any] = {}
    locations: dict[str, str] = {}
    for variable, (name, value) in _FLAG_VARIABLES.items():
        if environ.get(variable) and checks.flag(variable, checks.read_flag(environ[variable])):
            values[name], locations[name] = value, variable
    for setting in SETTINGS:
        variable = next((each for each in setting.variables if environ.get(each)), "")
        if variable:
            values[setting.field] = setting.check(variable, setting.read(environ[variable]))
            locations[setting.field] = variable
    if values.get("strategy") == "fsdp":
        values["fsdp"], locations["fsdp"] = _section(environ, FSDP_VARIABLES), "FSDP_*"
    if values.get("dynamo_backend", "no") != "no":
        values["dynamo"], locations["dynamo"] = _section(environ, DYNAMO_VARIABLES), "ACCELERATE_DYNAMO_*"
    return Layer("environment", values, locations)


def _section(environ: Mapping[str, str], table: Mapping[str, str]) -> dict[str, Any]:
    """The values that variables give to a section of the file, by its keys."""
    found = {
        key: keys.check(key, keys.KEYS[key].read(environ[name]), name)
        for key, name in table.items()
        if environ.get(name)
    }
    return {key: value for key, value in found.items() if value is not None}


def rank_environment(config: LaunchConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that hand training settings to ranks, such as `ACCELERATE_GRADIENT_ACCUMULATION_STEPS`.

    `train/ranks/environment.py` reads them on the rank, and so does Hugging Face Accelerate.

    Args:
        config: The settings of the launch.
        environ: The environment that the ranks inherit.
    """
    variables = {"ACCELERATE_MIXED_PRECISION": config.mixed_precision}
    # Only if they were set: in Accelerate, these variables override the arguments in the user's own code.
    if config.gradient_accumulation_steps != 1 or "ACCELERATE_GRADIENT_ACCUMULATION_STEPS" in environ:
        variables["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] = str(config.gradient_accumulation_steps)
    if config.dynamo_backend != "no" or "ACCELERATE_DYNAMO_BACKEND" in environ:
        variables["ACCELERATE_DYNAMO_BACKEND"] = config.dynamo_backend.upper()
        variables |= {DYNAMO_VARIABLES[key]: _text(value) for key, value in config.dynamo.items()}
    if config.debug or "ACCELERATE_DEBUG_MODE" in environ:
        variables["ACCELERATE_DEBUG_MODE"] = _yes_or_no(config.debug)
    if config.debug and "TORCH_DISTRIBUTED_DEBUG" not in environ:
        variables["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"  # the same for the collectives of plain torch
    return variables | fsdp_environment(config.fsdp if config.strategy == "fsdp" else None, environ)


def fsdp_environment(fsdp: Mapping[str, Any] | None, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that configure FSDP on ranks, for launches from a notebook and from the command line.

    Args:
        fsdp: The settings, by the keys of the file; a value of `None` is not set. `None`: models are not sharded.
        environ: The environment that the ranks inherit.
    """
    if fsdp is None:
        return {"ACCELERATE_USE_FSDP": "false"} if "ACCELERATE_USE_FSDP" in environ else {}
    # Without a version, Accelerate and the Trainer of transformers use FSDP1.
    found = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}
    return found | {FSDP_VARIABLES[key]: _text(value) for key, value in fsdp.items() if value is not None}


def _check_names(environ: Mapping[str, str]) -> None:
    """Rejects names that nearly match a setting: a misspelled variable would silently have no effect."""
    for name in environ:
        if name.startswith(PREFIX) and name not in _OWN_VARIABLES:
            close = closest(name[len(PREFIX) :], [each[len(PREFIX) :] for each in _OWN_VARIABLES], _SIMILAR)
            if close:
                raise ConfigurationError(f"{name} in the environment is not a setting; did you mean {PREFIX}{close}?")


def _yes_or_no(value: bool) -> str:
    return "true" if value else "false"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return _yes_or_no(value)
    return str(value)
