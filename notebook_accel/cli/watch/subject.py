"""What is watched: the ranks of a script, and who reports on them."""

from __future__ import annotations

from dataclasses import dataclass

LAUNCHER = -1
"""The number of torch's launcher among those that call."""


@dataclass(frozen=True)
class Subject:
    """What is watched."""

    name: str
    """Of the script."""
    place: str
    """What its ranks run on, in words."""
    size: int
    """Ranks on this machine."""
    world_size: int
