"""The request to profile training steps, and what a rank replies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from notebook_accel.events.base import Blobs, Event


@dataclass(frozen=True)
class ProfileRequested(Event):
    """Profile training steps with torch's profiler, from the end of the current step on; then report with `Profiled`.

    The driver sends it.
    """

    kind = "profile-wanted"
    number: int
    """Identifies the request; the reply carries the same number."""
    steps: int
    seconds: float
    """Seconds after which the rank gives up."""
    most_bytes: int
    """The longest trace, in bytes before compression; of a longer one, the shortest events are left out."""


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
