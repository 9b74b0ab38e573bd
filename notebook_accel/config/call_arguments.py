"""The arguments of `notebook_launcher` as a layer; `unset` marks defaults, so that only given arguments count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from notebook_accel.config import checks
from notebook_accel.config.layers import Layer
from notebook_accel.config.settings import BY_ARGUMENT
from notebook_accel.errors import ConfigurationError

T = TypeVar("T", str, int, float)


class _Unset:
    """A default value that is equal to the plain value and looks like it, but can be recognized as not given."""


class _UnsetText(_Unset, str):
    pass


class _UnsetInteger(_Unset, int):
    pass


class _UnsetNumber(_Unset, float):
    pass


_KINDS: dict[type, Any] = {str: _UnsetText, int: _UnsetInteger, float: _UnsetNumber}


def unset(value: T) -> T:
    """A default for a parameter, overridden by the notebook's settings, the environment and the file."""
    marked: T = _KINDS[type(value)](value)
    return marked


def from_call(arguments: Mapping[str, Any], location: str = "") -> Layer:
    """The layer of a call.

    Args:
        arguments: By their names in `notebook_launcher`; those that are not settings are ignored. `None`, and a
            default that `unset` made, count as not given.
        location: Where they were given, if not in a call; for instance, an option of `%%accelerate`.

    Raises:
        ConfigurationError: One of them is not valid.
    """
    given = {
        name: value
        for name, value in arguments.items()
        if not isinstance(value, _Unset) and (value is not None or name in _NONE_IS_A_VALUE)
    }
    values: dict[str, Any] = {}
    locations: dict[str, str] = {}
    for name, setting in BY_ARGUMENT.items():
        if name in given:
            values[setting.field] = setting.check(name, given[name])
            locations[setting.field] = location or name
    if given.get("rdzv_endpoint"):
        address, port = checks.endpoint("rdzv_endpoint", given["rdzv_endpoint"])
        if values.get("master_addr", address) != address or values.get("port", port) != port:
            raise ConfigurationError(
                f"rdzv_endpoint={given['rdzv_endpoint']!r} contradicts master_addr={values.get('master_addr')!r} or "
                f"use_port={values.get('port')!r}: give one of them"
            )
        values |= {"master_addr": address, "port": port}
        locations |= dict.fromkeys(("master_addr", "port"), "rdzv_endpoint")
    return Layer("call", values, locations)


_NONE_IS_A_VALUE = (
    "mixed_precision",
    "use_port",
    "master_addr",
    "node_rank",
    "num_nodes",
    "max_restarts",
    "stall_after",
)
"""Arguments whose default is not `None`: a `None` was given on purpose, or by mistake, and is checked."""
