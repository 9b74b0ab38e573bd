"""The configuration that counts now, merged of all that say something about it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from notebook_accel.config import environment, file
from notebook_accel.config.call_arguments import from_call
from notebook_accel.config.layers import Layer, merge
from notebook_accel.config.settings import LaunchConfig

_magic_layer = Layer("magic")
"""What `%accelerate` has set in this process."""


def magic_layer() -> Layer:
    """What `%accelerate` has set."""
    return _magic_layer


def set_magic_layer(layer: Layer) -> None:
    """Makes this what `%accelerate` has set."""
    global _magic_layer  # one kernel has one user
    _magic_layer = layer


def resolve(arguments: Mapping[str, Any] | None = None, location: str = "") -> LaunchConfig:
    """The configuration of a launch from here.

    Args:
        arguments: Those of the call, as in `from_call`.
        location: Where they stand, if it is no call.

    Raises:
        ConfigurationError: Something in it cannot work; the message says where it stands.
    """
    called = from_call(arguments or {}, location)
    return merge([*base_layers(os.environ), _magic_layer, called])


def base_layers(environ: Mapping[str, str], path: Path | None = None) -> list[Layer]:
    """The layers that hold for every process of this user: the file and the environment.

    Args:
        environ: The environment.
        path: Another file than the usual one.

    Raises:
        ConfigurationError: Something in them cannot work.
    """
    return [file.from_file(environ, path), environment.from_environment(environ)]
