"""The base class of all events, and the types that several of them share."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, SupportsFloat

Blobs = Sequence[bytes | bytearray | memoryview]
"""Binary parts, which are sent after the JSON object of an event."""


class Phase(str, enum.Enum):
    """The stage of its life that a rank is in."""

    STARTING = "starting"  # its process does not exist yet, or has not sent `Hello`
    IDLE = "idle"  # it waits for a call
    LOADING = "loading"  # it unpickles the function and imports what that needs
    RUNNING = "running"  # the user's function runs
    WAITING = "waiting"  # it is in a collective operation, waiting for other ranks
    PAUSED = "paused"  # it waits between two steps until the user resumes it
    DONE = "done"  # the function returned
    FAILED = "failed"  # the function raised, or the process died
    STOPPED = "stopped"  # it was ended on request, or because another rank failed

    @property
    def ended(self) -> bool:
        return self in (Phase.DONE, Phase.FAILED, Phase.STOPPED)


@dataclass(frozen=True)
class Event:
    """The base class of every event."""

    kind: ClassVar[str]


@dataclass(frozen=True)
class Frame:
    """One frame of a traceback or a stack."""

    filename: str
    lineno: int
    name: str
    line: str = ""
    """The source line, stripped, as the rank saw it."""


def as_float(number: SupportsFloat) -> float:
    """The number as a float; infinity for an integer or a fraction beyond all floats."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf  # type: ignore[operator]
