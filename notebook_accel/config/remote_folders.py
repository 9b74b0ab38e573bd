"""Folders that are addresses, such as `s3://bucket/run`: which ones work, and what to install for them."""

from __future__ import annotations

import importlib.util
import os
import re

from notebook_accel.errors import ConfigurationError, did_you_mean

_EXTRA = {"s3fs", "gcsfs"}
"""The packages that `notebook-accel[remote]` installs."""
_LOCAL = ("file", "local")
_ONE_SLASH = re.compile(r"([a-z][a-z0-9+.-]+):/(?!/)")
_NO_STORE = ("memory", "data")
"""Protocols of fsspec whose files only this process has."""


def is_remote(folder: str) -> bool:
    """Whether this is an address, rather than a path of the file system."""
    return "://" in folder


def check_slashes(name: str, folder: str) -> None:
    """Refuses `s3:/bucket/run`, which is a path, although an address is meant.

    Args:
        name: The setting, for messages.
        folder: What the user gave.

    Raises:
        ConfigurationError: The path begins like an address.
    """
    if found := _ONE_SLASH.match(folder):
        raise ConfigurationError(
            f"{name}={folder!r} is a path on this machine: did you mean {found[1]}://{folder[found.end() :]}? "
            f"If you mean the path, write ./{folder}"
        )


def absolute(folder: str) -> str:
    """The folder, such that it has the same meaning in another working directory."""
    return folder if is_remote(folder) else os.path.abspath(os.path.expanduser(folder))


def check(name: str, address: str) -> str:
    """Checks an address, without connecting.

    Args:
        name: The setting, for messages.
        address: What the user gave.

    Returns:
        The address, or the path that it names.

    Raises:
        ConfigurationError: No file system is known for it, or its package is not installed.
    """
    protocol, _, path = address.partition("://")
    if protocol in _LOCAL:
        return path
    if protocol in _NO_STORE:
        raise ConfigurationError(f"{name}={address!r}: {protocol}:// is gone when its process ends; name a folder")
    if importlib.util.find_spec("fsspec") is None:
        raise ConfigurationError(
            f'{name}={address!r} needs the package fsspec: run pip install "notebook-accel[remote]"'
        )
    from fsspec.registry import known_implementations, registry

    if protocol in registry:
        return address
    if protocol not in known_implementations:
        known = [*known_implementations, *registry]
        raise ConfigurationError(
            f"{name}={address!r}: fsspec has no file system {protocol}://{did_you_mean(protocol, known)}. Name a "
            "folder, or install the package that provides this one"
        )
    package = str(known_implementations[protocol]["class"]).partition(".")[0]
    if importlib.util.find_spec(package) is None:
        wanted = '"notebook-accel[remote]"' if package in _EXTRA else package
        raise ConfigurationError(f"{name}={address!r} needs the package {package}: run pip install {wanted}")
    return address
