"""The arguments of `notebook_launcher` as a layer, and how those that were given are told from the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from notebook_accel.config import checks
from notebook_accel.config.layers import Layer
from notebook_accel.config.settings import BY_ARGUMENT
from notebook_accel.errors import ConfigurationError

T = TypeVar("T", str, int, float)


class _Unset:
    """A default: equal to the value that it stands for and shown as it, but known for not having been given."""


class _UnsetText(_Unset, str):
    pass


class _UnsetInteger(_Unset, int):
    pass


class _UnsetNumber(_Unset, float):
    pass


_KINDS: dict[type, Any] = {str: _UnsetText, int: _UnsetInteger, float: _UnsetNumber}


def unset(value: T) -> T:
    """A default of a parameter, which gives way to what the notebook, the environment and the file say."""
    marked: T = _KINDS[type(value)](value)
    return marked


def from_call(arguments: Mapping[str, Any], location: str = "") -> Layer:
    """The layer of a call.

    Args:
        arguments: By the names that they have in `notebook_launcher`; those that are no settings are passed over.
            `None`, and what `unset` has made, is not given.
        location: Where they stand, if it is no call: an option of `%%accelerate` sets what an argument does.

    Raises:
        ConfigurationError: One of them cannot work.
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
"""Their default is not `None`, so who gives `None` means it, or is mistaken."""
