"""What is sent to a rank, and the replies to requests: profiles of steps, collectives, the debugger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from notebook_accel.events.base import Blobs, Event


@dataclass(frozen=True)
class Call(Event):
    """Run a function. The parts of its payload are sent with it, or the descriptors of memory files that hold them."""

    kind = "call"
    layout: Sequence[int]
    """Lengths in bytes of the payload's parts; in a file, each part begins on a page boundary."""


@dataclass(frozen=True)
class StacksRequested(Event):
    """Report the stack of each thread, with the event `Stacks`."""

    kind = "stacks-wanted"
    number: int
    """Identifies the request; the reply carries the same number."""


@dataclass(frozen=True)
class SamplesRequested(Event):
    """Sample the stack of the main thread for some time, or until the call ends; then report with `Sampled`."""

    kind = "samples-wanted"
    number: int
    """Identifies the request; the reply carries the same number."""
    seconds: float
    rate: float
    """Samples per second."""


@dataclass(frozen=True)
class Answer(Event):
    """The line of input that the rank requested with `InputRequested`."""

    kind = "answer"
    text: str | None
    """`None`: no user is connected who could type it."""


@dataclass(frozen=True)
class NameAnswered(Event):
    """What the notebook has under a name that the rank requested with `NameRequested`."""

    kind = "name"
    name: str
    data: str = ""
    """Pickled, as Base64; empty if the notebook can't be asked, or doesn't send it."""
    error: str = ""
    """Why the notebook doesn't send it."""


@dataclass(frozen=True)
class Interrupt(Event):
    """Raise `KeyboardInterrupt` in the function. For a rank that is a thread: signals reach only whole processes."""

    kind = "interrupt"


@dataclass(frozen=True)
class Preempt(Event):
    """End a resumable training run after its next step, with a checkpoint; interrupt any other function."""

    kind = "preempt"
    reason: str


@dataclass(frozen=True)
class Disconnect(Event):
    """Close the connections to the other ranks, so that a collective that waits on them fails at once."""

    kind = "disconnect"


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
    clock_error: float = 0.0
    """By how many seconds that may be wrong since the rank's node has another clock than the notebook's."""
    trace: Blobs = field(default=(), repr=False)
    """One part: a trace in Chrome's format, compressed with gzip."""


@dataclass(frozen=True)
class Collective:
    """A collective operation, or an operation between two ranks, as torch's flight recorder has it."""

    group: str
    """The name of its process group, the same on all ranks of the group."""
    group_label: str
    """What the group is for, such as `default_pg`."""
    number: int
    """Its number in the group: the first one is 1. A collective has the same number on all ranks of the group."""
    operation: str
    """`all_reduce`, `broadcast`, …"""
    shapes: str
    """Of what the rank gives, such as `float[256, 10]`; several with commas."""
    size: int
    """Bytes of that."""
    seconds_ago: float
    """How long before the report the rank began it."""
    done: bool
    """Whether it has ended on the rank."""
    seconds: float | None = None
    """How long it took; `None` while it runs, and if the recorder doesn't tell, as with gloo."""
    between_two: bool = False
    """Whether it sends to one rank or receives from one; those are numbered by themselves."""


@dataclass(frozen=True)
class CollectivesRequested(Event):
    """Report the last collectives, with `CollectivesRecorded`. The driver sends it."""

    kind = "collectives-wanted"
    number: int
    """Identifies the request; the reply carries the same number."""
    most: int
    """How many to report."""


@dataclass(frozen=True)
class CollectivesRecorded(Event):
    """The last collectives of the rank, the oldest first. A rank sends it."""

    kind = "collectives"
    number: int
    """The number of the request."""
    entries: Sequence[Collective]
    error: str = ""
    """Why there are none, if torch records none there."""
    at: float = 0.0
    """When it was reported, in seconds since the epoch."""


@dataclass(frozen=True)
class DebugRequested(Event):
    """Requests to the rank's debugger, each the text of a JSON object.

    They are those of the Debug Adapter Protocol: https://microsoft.github.io/debug-adapter-protocol/specification
    """

    kind = "debug"
    messages: Sequence[str]
    before_call: bool = False
    """Whether to start the debugger if it isn't running, and to handle the requests before the next call begins."""


@dataclass(frozen=True)
class DebugReplied(Event):
    """A response or an event of the rank's debugger."""

    kind = "debugged"
    message: str
    """The text of a JSON object."""
