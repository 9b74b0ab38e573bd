"""The request to profile training steps, and what a rank replies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from notebook_accel.events.base import Blobs, Event


@dataclass(frozen=True)
class ProfileRequested(Event):
    """Profile training steps with torch's profiler, from the end of a step on; then report with `Profiled`.

    The driver sends it, after it has found a step that no rank has passed; see `control.py`.
    """

    kind = "profile-wanted"
    number: int
    """Identifies the request; the reply carries the same number."""
    steps: int
    seconds: float
    """Seconds after which the rank gives up."""
    most_bytes: int
    """The longest trace, in bytes before compression; of a longer one, the shortest events are left out."""
    step: int = -1
    """The step of the call after which the first whole step is profiled, the same on all ranks; -1: the current one."""


@dataclass(frozen=True)
class Profiled(Event):
    """The trace of training steps, or why there is none. A rank sends it."""

    kind = "profiled"
    number: int
    """The number of the request."""
    error: str = ""
    """Why there is no trace."""
    is_late: bool = False
    """Whether there is none because the steps have not ended in time."""
    note: str = ""
    """What is missing in the trace."""
    boundaries: Sequence[int] = ()
    """When each step ended, the first one being that before the trace, in nanoseconds on the node's monotonic clock."""
    at: float = 0.0
    """When the first of these was, in seconds since the epoch."""
    trace: Blobs = field(default=(), repr=False)
    """One part: a trace in Chrome's format, compressed with gzip."""
