"""Settings in environment variables: those that users set, and those that a launch sets for its ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from notebook_accel.config import kinds
from notebook_accel.config.keys import KEYS
from notebook_accel.config.layers import Layer
from notebook_accel.config.settings import SETTINGS, LaunchConfig
from notebook_accel.errors import ConfigurationError, closest

PREFIX = "NOTEBOOK_ACCEL_"
FILE_VARIABLE = "NOTEBOOK_ACCEL_CONFIG_FILE"
_FLAG_VARIABLES = {"ACCELERATE_USE_CPU": ("device", "cpu"), "ACCELERATE_USE_FSDP": ("strategy", "fsdp")}
"""Accelerate's variables that are flags, and the field and value that each sets."""
_PARALLELISM = "ACCELERATE_USE_PARALLELISM_CONFIG"
"""Accelerate's variable that has an `Accelerator` read the others whose names begin with `PARALLELISM_CONFIG_`."""
_OWN_VARIABLES = [row.variable for row in SETTINGS.values() if row.variable]
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
        if environ.get(variable) and kinds.flag.parse(variable, environ[variable]):
            values[name], locations[name] = value, variable
    for row in SETTINGS.values():
        variable = next((each for each in (row.variable, row.rank_variable) if environ.get(each)), "")
        if variable:
            values[row.field], locations[row.field] = row.kind.parse(variable, environ[variable]), variable
    if values.get("strategy") == "fsdp":
        values["fsdp"], locations["fsdp"] = _entries(environ, "fsdp"), "FSDP_*"
    if values.get("dynamo_backend", "no") != "no":
        values["dynamo"], locations["dynamo"] = _entries(environ, "dynamo"), "ACCELERATE_DYNAMO_*"
    if environ.get(_PARALLELISM) and kinds.flag.parse(_PARALLELISM, environ[_PARALLELISM]):
        values["parallelism"], locations["parallelism"] = _entries(environ, "parallelism"), "PARALLELISM_CONFIG_*"
    return Layer("environment", values, locations)


def _entries(environ: Mapping[str, str], field: str) -> dict[str, Any]:
    """The entries of a field that is a mapping, by their keys in the file."""
    found = {
        row.key: row.parse_key(row.rank_variable, environ[row.rank_variable])
        for row in KEYS.values()
        if row.field == field and environ.get(row.rank_variable)
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
    for row in SETTINGS.values():
        value = getattr(config, row.field)
        # Only if they were set: in Accelerate, these variables override the arguments in the user's own code.
        if row.rank_variable and (value != row.default or row.rank_variable in environ):
            variables[row.rank_variable] = row.kind.write(value)
    if config.debug and "TORCH_DISTRIBUTED_DEBUG" not in environ:
        variables["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"  # the same for the collectives of plain torch
    if config.strategy == "fsdp":
        # Without a version, Accelerate and the Trainer of transformers use FSDP1.
        variables |= {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}
    elif "ACCELERATE_USE_FSDP" in environ:
        variables["ACCELERATE_USE_FSDP"] = "false"
    entries = {**config.dynamo, **(config.fsdp if config.strategy == "fsdp" else {})}
    if config.parallelism:
        variables[_PARALLELISM] = "true"
        # All of them, since the ranks may inherit others.
        entries |= {row.key: row.unset[0] for row in KEYS.values() if row.field == "parallelism"}
        entries |= config.parallelism
    return variables | {KEYS[key].rank_variable: KEYS[key].kind.write(value) for key, value in entries.items()}


def _check_names(environ: Mapping[str, str]) -> None:
    """Rejects names that nearly match a setting: a misspelled variable would silently have no effect."""
    for name in environ:
        if name.startswith(PREFIX) and name not in _OWN_VARIABLES:
            close = closest(name[len(PREFIX) :], [each[len(PREFIX) :] for each in _OWN_VARIABLES], _SIMILAR)
            if close:
                raise ConfigurationError(f"{name} in the environment is not a setting; did you mean {PREFIX}{close}?")
