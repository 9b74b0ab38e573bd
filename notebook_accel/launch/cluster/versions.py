"""The versions that must be the same on all nodes and in the notebook."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping

from notebook_accel.launch.cluster.agent_launcher import ClusterError

_COMPARED = ("torch", "notebook-accel", "cloudpickle")


def compare(host: str, address: str, theirs: Mapping[str, str]) -> None:
    """Refuses a node with different versions, since unpickling might fail.

    Raises:
        ClusterError: A version differs.
    """
    mine = versions()
    differ = [
        f"{name} {theirs.get(name) or 'is not installed'} (here {mine[name]})"
        for name in mine
        if theirs.get(name) != mine[name]
    ]
    if differ:
        raise ClusterError(
            f"{host} ({address}) has {', '.join(differ)}: objects pickled here may not load there. Install the "
            "same versions on every machine, such as from one constraints file or image."
        )


def order(address: str, host: str) -> tuple[tuple[int, ...], str]:
    """A key that sorts nodes by their addresses, numerically if they are numbers."""
    parts = address.split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else (), f"{address} {host}"


def versions() -> dict[str, str]:
    """The versions that must be the same on all nodes and in the notebook."""
    found = {"Python": ".".join(platform.python_version_tuple()[:2])}
    for name in _COMPARED:
        try:
            # A build for another device counts as the same version.
            found[name] = importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            found[name] = ""
    return found
