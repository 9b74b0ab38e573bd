"""Describes the launch that is watched."""

from __future__ import annotations

from dataclasses import dataclass

LAUNCHER = -1
"""Stands for torch's launcher in place of a local rank."""


@dataclass(frozen=True)
class WatchedLaunch:
    """The ranks of a script on this machine."""

    name: str
    """The script's."""
    place: str
    """The devices that the ranks run on, as text."""
    size: int
    """Ranks on this machine."""
    world_size: int
