"""What is noted of a job, or of a rank from outside, by whoever runs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from notebook_accel.events.base import Event, Frame, Phase


@dataclass(frozen=True)
class JobStarted(Event):
    """A job begins: what is known of it from the first."""

    kind = "job"
    id: str
    name: str
    """The launched function's."""
    first: int
    """The global number of the first rank on this machine."""
    size: int
    """Ranks on this machine."""
    world_size: int
    """Ranks on all machines."""
    hardware: str
    """What the ranks run on, in words."""
    label: str | None
    """The template for the label of output lines, if not the usual one."""
    at: float
    """Seconds since the epoch."""
    local_size: int = 0
    """Ranks on each machine of a cluster; 0 for all on this one."""


@dataclass(frozen=True)
class AttemptStarted(Event):
    """The whole group starts (again)."""

    kind = "attempt"
    attempt: int
    """0 for the first."""
    reason: str = ""


@dataclass(frozen=True)
class Signalled(Event):
    """The rank was sent a signal that is to end it."""

    kind = "signalled"
    signal: int


@dataclass(frozen=True)
class StopRequested(Event):
    """The job was asked to stop."""

    kind = "stop"
    times: int
    """How often by now. The second time kills its ranks."""


@dataclass(frozen=True)
class Location:
    """Where one rank is while its job makes no progress."""

    rank: int
    phase: Phase
    doing: str = ""
    """The collective or function that it is in, if that is known."""
    where: str = ""
    """The user's line: `In[5] line 12`."""
    frames: Sequence[Frame] = ()
    """The stack of its main thread, the outermost frame first."""


@dataclass(frozen=True)
class Stalled(Event):
    """Of the whole job: ranks wait, and what they wait for has stood still for long. Without places: it goes on."""

    kind = "stalled"
    places: Sequence[Location]
    """Of every rank on this machine."""
    since: float = 0.0
    """When there was progress last, in seconds since the epoch."""
    elsewhere: int = 0
    """The number of ranks on other machines, of which nothing is known here."""


@dataclass(frozen=True)
class Notice(Event):
    """One line that is ours, for whoever watches the job."""

    kind = "notice"
    text: str


@dataclass(frozen=True)
class LinesLeftOut(Event):
    """The rank has written more lines than a journal tells of, before those that follow."""

    kind = "left out"
    count: int


@dataclass(frozen=True)
class History(Event):
    """What is kept of one metric of a rank: stands in a shortened journal for all that the rank had reported of it."""

    kind = "history"
    name: str
    stride: int
    """Of so many points one is kept."""
    count: int
    """How many points there were."""
    steps: Sequence[int | None]
    """Of the kept points, and at the end of the very last; so are the times and the values."""
    times: Sequence[float]
    """Seconds since the epoch."""
    values: Sequence[float]


@dataclass(frozen=True)
class JobEnded(Event):
    """A job is over."""

    kind = "end"
    status: str
    """What has become of it, as the job's `Status` has it."""
    at: float
    """Seconds since the epoch."""
    error: str = ""
    """The text of what its result raises."""
    error_type: str = ""
    """And the name of its class."""
