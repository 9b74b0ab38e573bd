"""What the browser gets about jobs and devices. `scripts/generate` writes extension/lab/src/model.ts from it.

The server makes all text about a job or a device; the browser only draws it.
"""

from __future__ import annotations

from typing import TypeAlias, TypedDict

from notebook_accel.panel.panel_model import PanelUpdate

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
    notes: str
    pinned: bool
    """Whether the user wants it first in the list."""
    status: StatusName
    state: str
    """The same in a word for the user, such as `stalled` or `paused` while it runs."""
    live: bool
    """Whether it may still run."""
    seconds: float
    """How long it has run."""
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
    notebook: str
    """The path in its Jupyter server of the notebook whose cell launched it; empty if that isn't known."""
    cell: str
    """The ID of this cell."""
    part: bool
    """Whether it is one of the trials of a sweep, whose board tells how they end."""


class JobListing(TypedDict):
    """The user's last jobs."""

    jobs: list[JobRow]
    """The newest first."""
    problem: str
    """Why the jobs cannot be listed; empty if they can."""


class RunFact(TypedDict):
    """What is known of a run: a cell of a table."""

    name: str
    text: str
    order: float | None
    """By which rows are sorted; `None` if that is the text."""


class Curve(TypedDict):
    """A metric of one job, over the run."""

    by_step: bool
    """Whether `x` are steps; otherwise, the reports of each rank are counted."""
    x: list[int]
    """The steps, thinned; the first one of those that share a point."""
    last: list[int]
    """The last one of them; empty if none share a point."""
    mean: list[float | None]
    """The mean of the ranks at each step; `None` if no value is finite."""


class Run(TypedDict):
    """One job of a comparison."""

    id: str
    label: str
    """What the job is called, and if others are called the same, what tells them apart."""
    curves: dict[str, Curve]
    """Its metrics, by name: the one that is drawn in detail, and the first ones."""
    facts: list[RunFact]
    """Its state, the arguments that differ between the jobs, its values, and the rest, in the order of the columns."""
    problem: str
    """Why the values are missing; empty if they aren't."""


class Comparison(TypedDict):
    """The metrics of several jobs."""

    metric: str
    """The one that is drawn in detail."""
    names: list[str]
    """All metrics that any of the jobs has reported."""
    runs: list[Run]
    """In the order in which they were asked for."""
    complete: bool
    """Whether everything was read; otherwise, the next request has more."""


Moment: TypeAlias = tuple[int, int]
"""`[x, y]` of a chart, in thousandths of its width, the last five minutes, and of its height; 0 is the bottom."""


class Gauge(TypedDict):
    """Something that is measured again and again."""

    name: str
    value: str
    """The last value, and the most that is possible."""
    lines: list[list[Moment]]
    """The last five minutes; a new line begins after a pause."""


class Device(TypedDict):
    """A GPU, or the machine itself."""

    id: str
    """As in `JobRow.devices`: the UUID of a GPU, or `cpu` for the machine."""
    title: str
    gauges: list[Gauge]
    warning: str
    """What is wrong with it; empty if nothing is."""


class DeviceListing(TypedDict):
    """The devices of the machine that the Jupyter server runs on."""

    devices: list[Device]
    """The machine, then its GPUs in the driver's order."""
    problem: str
    """Why GPUs can't be read; empty if they can, and without GPUs."""


class NotedOutput(TypedDict):
    """An output of a notebook that shows a job."""

    job: str
    cell: str
    """The ID of its cell."""
    at: float
    """When it was drawn first, in seconds since the epoch."""


class ServedUpdate(PanelUpdate):
    """What a page gets when it asks what is new."""

    buffers: list[str]
    """What follows each reply, in base64."""
    pause: int
    """Milliseconds until the page asks again; -1 if nothing changes from now on, unless the page has a request."""
    reading: bool
    """Whether the journal is still being read, so that there is no state yet."""
    resume: str | None
    """What a button says that continues the training; empty if that can't be done, `None` while the job runs."""
    output: dict[str, str] | None
    """What stays in the notebook, by MIME type, if the page has asked for it."""
