"""The configuration of a launch, merged from all layers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from notebook_accel.config import environment_variables, file
from notebook_accel.config.call_arguments import from_call
from notebook_accel.config.layers import Layer, merge
from notebook_accel.config.settings import LaunchConfig

_magic_layer = Layer("magic")
"""The settings that `%accelerate` has made in this process."""


def magic_layer() -> Layer:
    """The layer that `%accelerate` has set."""
    return _magic_layer


def set_magic_layer(layer: Layer) -> None:
    """Replaces the layer that `%accelerate` has set."""
    global _magic_layer  # a kernel belongs to one user
    _magic_layer = layer


def resolve(arguments: Mapping[str, Any] | None = None, location: str = "", *, in_magic: bool = False) -> LaunchConfig:
    """The configuration of a launch from here.

    Args:
        arguments: The arguments of the call, as in `from_call`.
        location: Where the arguments were given, if not in a call.
        in_magic: Whether the ranks are those of `%%accelerate`, so that messages name the options of magics.

    Raises:
        ConfigurationError: A setting is not valid; the message says where it was made.
    """
    called = from_call(arguments or {}, location)
    return merge([*base_layers(os.environ), _magic_layer, called], in_magic=in_magic)


def base_layers(environ: Mapping[str, str], path: Path | None = None) -> list[Layer]:
    """The layers that apply to every process of this user: the file and the environment.

    Args:
        environ: The environment.
        path: The file to read in place of the usual one.

    Raises:
        ConfigurationError: A setting is not valid.
    """
    return [file.from_file(environ, path), environment_variables.from_environment(environ)]
