"""The state of a job that is sent to the browser's panel. `scripts/generate` writes extension/src/model.ts from it.

The kernel makes all text that users read, so that every view shows the same text; the browser only draws.
"""

from __future__ import annotations

from typing import TypeAlias, TypedDict

PhaseName: TypeAlias = str
"""Where a rank is in its life: the value of an `events.Phase`."""
StatusName: TypeAlias = str
"""What has become of a job: the value of a `job.job_state.Status`."""
Done: TypeAlias = int
"""How much is done, in thousandths; -1 where that is not known."""
Point: TypeAlias = tuple[int, int, int, int]
"""`[x, mean, low, high]` at a place of a chart, in thousandths of its width and height."""


class Head(TypedDict):
    """The whole job."""

    name: str
    place: str
    status: StatusName
    elapsed: str
    left: str
    done: Done
    summary: str
    note: str
    layout: str
    """`rows`, or `grid` where ranks are many."""
    brief: bool
    """There is nothing yet to list ranks for."""
    blocking: bool
    """A cell waits for the job, so that the kernel's interrupt is meant for it."""
    stopping: int
    """How often its end has been asked for."""
    failed: list[int]
    """The ranks that failed, the first to fail at the head."""
    more: str
    """Where the metrics are that have no chart; empty where all have one."""
    unheard: str
    """What to say once the kernel is no longer heard, of a job that goes on without it; empty where it ends then."""


class Bar(TypedDict):
    """A progress bar of a rank."""

    depth: int
    description: str
    done: Done
    amount: str
    rate: str
    left: str
    postfix: str
    closed: bool


class Rank(TypedDict):
    """A rank."""

    phase: PhaseName
    host: str
    """Its node; empty where all ranks are on one."""
    detail: str
    """What it does in that phase."""
    done: Done
    text: str
    left: str
    behind: bool
    error: str
    memory: str
    """What it holds, in memory and on its device."""
    device: str
    """The device's alone; empty where it has none."""
    values: dict[str, str]
    """The latest of each metric, by name."""
    bars: dict[str, Bar]
    """By number, in the order in which they began."""
    lines: dict[str, str]
    """Its last lines by number, counted from its first one."""
    stack: str
    """Its Python stack, a line a frame, while the job has stalled; else empty."""


class Metric(TypedDict):
    """A metric over the run."""

    now: str
    range: str
    """Between which values the ranks lie."""
    points: list[Point]


class State(TypedDict):
    """All of it."""

    head: Head
    ranks: dict[str, Rank]
    metrics: dict[str, Metric]


class Keyframe(TypedDict):
    """The whole state, after `seq` messages. Each message after it holds a merge patch (RFC 7396), in `messages.ts`."""

    seq: int
    state: State
