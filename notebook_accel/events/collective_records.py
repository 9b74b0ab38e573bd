"""The request for a rank's last collectives, and what it replies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from notebook_accel.events.base import Event


@dataclass(frozen=True)
class Collective:
    """A collective operation, or an operation between two ranks, as torch's flight recorder has it."""

    group: str
    """The name of its process group, the same on all ranks of the group."""
    group_label: str
    """What the group is for, such as `default_pg`."""
    number: int
    """Its number in the group: the first one is 1. A collective has the same number on all ranks of the group."""
    operation: str
    """`all_reduce`, `broadcast`, …"""
    shapes: str
    """Of what the rank gives, such as `float[256, 10]`; several with commas."""
    size: int
    """Bytes of that."""
    seconds_ago: float
    """How long before the report the rank began it."""
    done: bool
    """Whether it has ended on the rank."""
    seconds: float | None = None
    """How long it took; `None` while it runs, and if the recorder doesn't tell, as with gloo."""
    between_two: bool = False
    """Whether it sends to one rank or receives from one; those are numbered by themselves."""


@dataclass(frozen=True)
class CollectivesRequested(Event):
    """Report the last collectives, with `CollectivesRecorded`. The driver sends it."""

    kind = "collectives-wanted"
    number: int
    """Identifies the request; the reply carries the same number."""
    most: int
    """How many to report."""


@dataclass(frozen=True)
class CollectivesRecorded(Event):
    """The last collectives of the rank, the oldest first. A rank sends it."""

    kind = "collectives"
    number: int
    """The number of the request."""
    entries: Sequence[Collective]
    error: str = ""
    """Why there are none, if torch records none there."""
    at: float = 0.0
    """When it was reported, in seconds since the epoch."""
