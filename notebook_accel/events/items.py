"""The items of a map, which its driver gives to ranks, and what these have made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from notebook_accel.events.base import Blobs, Event


@dataclass(frozen=True)
class ItemsRequested(Event):
    """The rank is ready for items. It sends this once; from then on, each `ItemsDone` says so."""

    kind = "items-wanted"


@dataclass(frozen=True)
class ItemsGiven(Event):
    """Call the function with these items. Without any, there are no more."""

    kind = "items"
    batch: int = 0
    """The most items of a call; 0: one, by itself rather than in a list."""
    data: Blobs = field(default=(), repr=False)
    """A blob for each item, as `map_call.dump` returns it."""


@dataclass(frozen=True)
class ItemsDone(Event):
    """What became of the items that the rank was given first, of those that it has not answered yet."""

    kind = "items done"
    errors: Sequence[str]
    """For each item: why it failed; empty if it didn't."""
    seconds: float
    """How long it took."""
    data: Blobs = field(default=(), repr=False)
    """For each item its value, as `map_call.dump_value` returns it; empty if it failed."""
