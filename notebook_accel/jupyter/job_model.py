"""What the browser gets about the user's jobs. `scripts/generate` writes extension/lab/src/model.ts from it.

The server makes all text about a job; the browser only draws it.
"""

from __future__ import annotations

from typing import TypeAlias, TypedDict

StatusName: TypeAlias = str
"""The status of a job: the value of a `launch.job.job_state.Status`."""
Done: TypeAlias = int
"""The fraction that is done, in thousandths; -1 if it is unknown."""
Point: TypeAlias = tuple[int, int]
"""`[x, y]` of a chart, in thousandths of its width and height; 0 is the bottom."""


class Metric(TypedDict):
    """The main metric of a job."""

    name: str
    value: str
    """The last value; empty if there is none that can be drawn."""
    lines: list[list[Point]]
    """The mean of the ranks over the run; a new line begins after values that are not finite."""


class JobRow(TypedDict):
    """A job."""

    id: str
    title: str
    status: StatusName
    live: bool
    """Whether it may still run."""
    done: Done
    summary: str
    """How it is getting on, in a line: `4 ranks · 57% · 2:10 left`."""
    details: str
    """When it began, and on which hardware."""
    note: str
    """Why it failed, stalled, or cannot be read; empty if there is nothing to say."""
    stopping: int
    """How often it was asked to stop. The second request kills its ranks."""
    metrics: list[Metric]
    """The main metric; empty if nothing was reported."""
    devices: dict[str, str]
    """The ranks on each device while the job runs, by the ID of the device: `train(): ranks 0, 2`."""
    code: str
    """The code of a cell that shows the job; empty if the job can't be read."""
    checkpoints: str
    """The folder that it saves checkpoints to; empty if it can't be resumed in another kernel."""
    resumable: bool
    """Whether its training ended unfinished, and no later job with its checkpoints runs or has finished it."""


class JobListing(TypedDict):
    """The user's last jobs."""

    jobs: list[JobRow]
    """The newest first."""
    problem: str
    """Why the jobs cannot be listed; empty if they can."""
