"""What all events are made of."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

Blobs = Sequence[bytes | bytearray | memoryview]
"""Binary parts, which go beside the JSON object of an event."""


class Phase(str, enum.Enum):
    """Where a rank is in its life."""

    STARTING = "starting"  # its process is not yet there, or has not spoken
    IDLE = "idle"  # it waits for a call
    LOADING = "loading"  # it unpickles the function and imports what that needs
    RUNNING = "running"  # the user's function runs
    WAITING = "waiting"  # it sits in a collective operation, waiting for other ranks
    DONE = "done"  # the function returned
    FAILED = "failed"  # the function raised, or the process died
    STOPPED = "stopped"  # it was ended on request or because another rank failed

    @property
    def ended(self) -> bool:
        return self in (Phase.DONE, Phase.FAILED, Phase.STOPPED)


@dataclass(frozen=True)
class Event:
    """Anything in the vocabulary."""

    kind: ClassVar[str]


@dataclass(frozen=True)
class Frame:
    """One frame of a traceback or a stack."""

    filename: str
    lineno: int
    name: str
    line: str = ""
    """The source line, stripped, as the rank saw it."""
