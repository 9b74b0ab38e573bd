"""The state of a job that is sent to the browser's panel. `scripts/generate` writes extension/src/model.ts from it.

The kernel makes all text that users read, so that every view shows the same text; the browser only draws.
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypedDict

PhaseName: TypeAlias = str
"""The phase of a rank: the value of an `events.Phase`."""
StatusName: TypeAlias = str
"""The status of a job: the value of a `launch.job.job_state.Status`."""
Done: TypeAlias = int
"""The fraction that is done, in thousandths; -1 if it is unknown."""
Mark: TypeAlias = tuple[float, int]
"""`[step, kind]` of values that are not finite: 0 for NaN, 1 for infinity, -1 for minus infinity."""


LogLineRow: TypeAlias = tuple[int, int, int, int, int, str]
"""`[position, rank, stream, milliseconds, level, text]` of a line that a rank has written: its stream is 0 for stdout
and 1 for stderr; its level 1 for a warning, 2 for an error, and 0 otherwise."""


class Head(TypedDict):
    """The job as a whole."""

    name: str
    devices: str
    """How many ranks on which hardware, and the attempt if it is not the first."""
    status: StatusName
    state: str
    """The status in a word, and while the job runs, what is wrong or special, such as `stalled`."""
    place: str
    """How far it is, such as `epoch 2/5 › batch 31/47`."""
    elapsed: str
    time_left: str
    done: Done
    choices: str
    """Choices that were made for the user, one a line; empty if there are none."""
    changes: list[str]
    """How it was restarted, and what the user has changed."""
    summary: str
    """What the percentage of the whole job hides, such as a rank that is slower."""
    about: dict[str, str]
    """What is known of the run: its call, when it began, and the like, by name."""
    tab: str
    """How it is getting on, in a few words, for the title of the browser's tab: `57% · loss 0.21`."""
    note: str
    """A notice about the whole job, such as a stall; empty if there is none."""
    advice: str
    """What would make it faster; empty if nothing is known."""
    layout: str
    """`rows`, or `grid` if there are many ranks."""
    brief: bool
    """Whether to show one line only, because the ranks have nothing to show yet."""
    blocking: bool
    """Whether a cell waits for the job, so that an interrupt of the kernel stops the job."""
    stopping: int
    """How many times a stop has been requested."""
    failed: list[int]
    """The ranks that failed, in the order in which they failed."""
    metric_names: list[str]
    """The metrics, in the order in which they were first reported."""
    metrics_note: str
    """How many metrics are left out of `metric_names`, and where to find them; empty if none are."""
    kernel_lost_note: str
    """The notice to show once the kernel is gone, if the job runs without it; empty if the job ends with it."""


class Command(TypedDict):
    """What a button does to the training."""

    action: str
    """The action of an `events.Control`."""
    label: str
    hint: str
    """What it does, or why that is not possible."""
    possible: bool


class Field(TypedDict):
    """A value that can be changed while the job runs."""

    action: str
    """What sets it."""
    name: str
    value: str
    hint: str
    """Its limits, or what to write; empty if there is nothing to say."""
    example: str
    """What the field shows while it is empty."""
    step: str
    """What a number is a multiple of: `1`, or `any`; empty if the value is text."""


class Controls(TypedDict):
    """What the user can do to the training."""

    commands: list[Command]
    fields: list[Field]
    feedback: str
    """What became of the last request, unless it was done: that is among the choices."""


class Bar(TypedDict):
    """A progress bar of a rank."""

    depth: int
    description: str
    done: Done
    amount: str
    rate: str
    time_left: str
    postfix: str
    closed: bool


class Rank(TypedDict):
    """The state of a rank."""

    phase: PhaseName
    host: str
    """Its node; empty if all ranks are on one node."""
    detail: str
    """What it is doing in that phase."""
    done: Done
    text: str
    time_left: str
    mark: str
    """Why it stands out among the ranks, such as `behind`; empty if it does not."""
    error: str
    is_consequence: bool
    """Whether it failed only because another rank had."""
    memory: str
    """The memory that it uses, on the host and on its device."""
    usage: str
    """How busy it is, and its memory, in a few words."""
    usage_facts: dict[str, str]
    """What its process and its device do, by what it is, and the most memory of each phase."""
    warning: str
    """What is wrong with its device; empty if nothing is."""
    values: dict[str, str]
    """The latest value of each metric, by name."""
    bars: dict[str, Bar]
    """Its progress bars, by number in the order in which they began."""
    lines: dict[str, str]
    """Its last lines of output, by number, counted from its first line."""
    stack: str
    """Its Python stack while the job is stalled, or when the user asked for it; otherwise empty."""


class Metric(TypedDict):
    """A metric over the run."""

    now: str
    """The last value, as it was reported; with several ranks, the mean of their values at the last step."""
    range: str
    """The minimum and maximum over the ranks at that step; empty if they are equal."""
    brief: str
    """The fact that matters most, such as `best 0.12 at step 400`."""
    facts: list[str]
    """The step of the last value; the first, best, least, and greatest value, each with its step; values not finite."""
    by_step: bool
    """Whether `x` are steps; otherwise, the reports of each rank are counted."""
    x: list[int]
    """The steps, thinned; the first one of those that share a point."""
    last: list[int]
    """The last one of them; empty if none share a point."""
    mean: list[float | None]
    """The mean of the values that are finite at each step; `None` if there are none."""
    low: list[float | None]
    """The minimum of the ranks and steps of each point; empty if it is the mean everywhere."""
    high: list[float | None]
    marks: list[Mark]


class State(TypedDict):
    """Everything that the panel draws."""

    head: Head
    controls: Controls
    ranks: dict[str, Rank]
    metrics: dict[str, Metric]


class ChartTable(TypedDict):
    """The values of one metric in the range of steps that an enlarged chart shows; its numbers follow in a buffer."""

    job: str
    """The ID of an earlier job; empty for the panel's own."""
    metric: str
    size: int
    """The number of points. Each column has as many numbers: first step, last step, mean, minimum, and maximum."""
    ranks: list[int]
    """The ranks whose means follow, in a column each."""
    marks: list[Mark]
    by_step: bool
    extent: tuple[float, float]
    """The first and the last step of the whole run."""


class ChartReply(TypedDict):
    """The answer to an enlarged chart."""

    id: str
    pause: float
    """The milliseconds after which the chart may ask for newer values."""
    problem: str
    """Why something is missing; empty if nothing is."""
    tables: list[ChartTable]


class EarlierJob(TypedDict):
    """A job whose metrics can be drawn behind those of the panel's job."""

    id: str
    label: str


class EarlierReply(TypedDict):
    """The answer to a chart that asks for earlier jobs."""

    id: str
    jobs: list[EarlierJob]


class LogReply(TypedDict):
    """The answer to a log that asks for lines."""

    id: str
    first: int
    """The position that the search came to. The lines before it are asked for next."""
    end: int
    """The position of the end of the log. The lines after it are asked for next."""
    more: bool
    """Whether there are lines before `first`."""
    gap: bool
    """Whether new lines were left out between those that were asked for and these, because they are too many."""
    problem: str
    """Why there are no lines; empty if there may be."""
    lines: list[LogLineRow]


class LogTextReply(TypedDict):
    """The answer to a log that asks for its text, of which the next part follows in a buffer."""

    id: str
    end: int
    """The position where this part ends; if nothing follows, that of the request."""
    first: int
    """The position of the first byte that is still stored."""
    last: int
    """The position of the end of the log."""
    problem: str
    """Why it can't be read; empty if it can."""


Answer: TypeAlias = ChartReply | EarlierReply | LogReply | LogTextReply
"""What answers a message that has an `id`, and says who asks as `asker`."""


class PanelUpdate(TypedDict, total=False):
    """What is new for a panel; without anything, it only asks the page to say that it is there."""

    seq: int
    """The number of the state that the page then has. It needs the whole state if it lacks the one before."""
    state: State
    """The whole state."""
    patch: dict[str, Any]
    """Or the changes since the state before: a merge patch (RFC 7396)."""
    replies: list[Answer]
    """The answers that are ready. Numbers or text follow each, in a buffer of its own."""
    results: list[str]
    """The flame graphs and profiles that were asked for and are ready, as HTML."""
    ack: int
    """The click on Stop that the kernel has received, or 0 if it has received that the page is there."""
    control: bool
    """Whether the kernel has received that on its control channel."""
