"""What a rank can say, and what can be seen of it: the one vocabulary of the package.

Each event is a frozen dataclass. `to_wire` and `from_wire` translate it to and from a JSON object and a list of binary
blobs; a blob is a field of type `Blobs`. The journal, the job and the views all read these same objects.

`emit` is how code that knows nothing of launches says something; the rank that it runs in listens.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from notebook_accel.errors import StreamError

Blobs = Sequence[bytes | bytearray | memoryview]


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
class Hello(Event):
    """The rank's process is ready for a call."""

    kind = "hello"
    pid: int
    host: str
    stacks: bool = False
    """Whether a descriptor travels with this event: the file that the rank's Python stacks are written to."""


@dataclass(frozen=True)
class PhaseChanged(Event):
    """The rank has gone on."""

    kind = "phase"
    phase: Phase
    detail: str = ""
    """What it does in that phase, such as the collective it waits in."""


@dataclass(frozen=True)
class Bar(Event):
    """The latest state of one progress bar."""

    kind = "bar"
    bar: int
    """Identifies the bar within its rank."""
    n: float
    total: float | None = None
    description: str = ""
    unit: str = "it"
    rate: float | None = None
    """Units a second."""
    elapsed: float = 0.0
    """Seconds."""
    postfix: str = ""
    depth: int = 0
    """How many bars enclose this one."""
    closed: bool = False
    leave: bool = True
    """Whether it is to be seen after its end."""


@dataclass(frozen=True)
class Metrics(Event):
    """Numbers that the user logged."""

    kind = "metrics"
    values: Mapping[str, float]
    step: int | None = None
    at: float = field(default_factory=time.time)
    """Seconds since the epoch."""


@dataclass(frozen=True)
class Line(Event):
    """One line that a rank wrote, without its newline."""

    kind = "line"
    stream: str
    """`stdout` or `stderr`."""
    text: str


@dataclass(frozen=True)
class Heartbeat(Event):
    """The rank's process is alive, and this is what it holds."""

    kind = "heartbeat"
    resident: int
    """Resident memory of the process, in bytes."""
    device_used: int | None = None
    """Memory held on the rank's device, in bytes."""
    device_total: int | None = None


@dataclass(frozen=True)
class Frame:
    """One frame of a traceback."""

    filename: str
    lineno: int
    name: str
    line: str = ""
    """The source line, stripped, as the rank saw it."""


@dataclass(frozen=True)
class Raised:
    """One exception of a chain."""

    type_name: str
    text: str
    """The exception as Python's own traceback ends: type, message, notes."""
    frames: Sequence[Frame]
    link: str = ""
    """How the next, outer exception of the chain came about: `cause`, `context`, or empty for the outermost."""


@dataclass(frozen=True)
class Failed(Event):
    """The call ended in an exception."""

    kind = "failed"
    chain: Sequence[Raised]
    """The exception last, those that led to it before."""
    at: float
    """Seconds since the epoch."""
    stage: str = "running"
    """`loading` (the payload), `running` (the function) or `returning` (its value)."""
    from_peer: bool = False
    """It only tells that another rank has gone: a collective whose connection was lost."""
    exit_code: int | None = None
    """The code given to `sys.exit`."""
    exception: Blobs = field(default=(), repr=False)
    """The pickled exception, if it could be pickled."""


@dataclass(frozen=True)
class Returned(Event):
    """The call returned."""

    kind = "returned"
    value: Blobs = field(default=(), repr=False)
    """The pickled value: the stream, then its out-of-band buffers. Empty for `None`."""


@dataclass(frozen=True)
class Exited(Event):
    """The rank's process has ended, as its parent saw it; or does so now, as its own last word."""

    kind = "exited"
    code: int | None
    """Exit status, or `None` when a signal ended it."""
    signal: int | None = None
    at: float = 0.0
    """Seconds since the epoch."""
    peak_resident: int | None = None
    """The most memory that the process ever held resident, in bytes."""


@dataclass(frozen=True)
class AttemptStarted(Event):
    """The whole group starts (again)."""

    kind = "attempt"
    attempt: int
    """0 for the first."""
    reason: str = ""


@dataclass(frozen=True)
class Call(Event):
    """The one thing that is said *to* a rank: run this. The payload's file descriptor travels with it."""

    kind = "call"
    layout: Sequence[int]
    """Lengths in bytes of the payload's parts; each part begins on a page boundary."""


_EVENTS: dict[str, type[Event]] = {
    cls.kind: cls
    for cls in (
        Hello, PhaseChanged, Bar, Metrics, Line, Heartbeat, Failed, Returned, Exited, AttemptStarted, Call,
    )
}  # fmt: skip
_BLOB_FIELDS = {Failed: "exception", Returned: "value"}


_sink: Callable[[Event], None] | None = None


def listen(sink: Callable[[Event], None] | None) -> None:
    """Has `sink(event)` called for each event emitted here, on the thread that emits; `None` ends it."""
    global _sink
    _sink = sink


def is_heard() -> bool:
    """Whether somebody listens, for those to whom an event is dear."""
    return _sink is not None


def emit(event: Event) -> None:
    """Says something to whoever listens."""
    if _sink is not None:
        _sink(event)


def to_wire(event: Event) -> tuple[dict[str, Any], Blobs]:
    """Returns `(header, blobs)`: a JSON-ready object, and the binary parts that go beside it."""
    header: dict[str, Any] = {"kind": event.kind}
    blob_field = _BLOB_FIELDS.get(type(event))
    for item in fields(event):
        if item.name != blob_field:
            header[item.name] = _plain(getattr(event, item.name))
    return header, getattr(event, blob_field) if blob_field else ()


def from_wire(header: Mapping[str, Any], blobs: Blobs = ()) -> Event:
    """Rebuilds an event.

    Raises:
        StreamError: The header names no known event, or its fields are not that event's.
    """
    values = dict(header)
    cls = _EVENTS.get(str(values.pop("kind", "")))
    if cls is None:
        raise StreamError(f"no such event: {str(header)[:200]}")
    if cls in _BLOB_FIELDS:
        values[_BLOB_FIELDS[cls]] = blobs
    try:
        if cls is PhaseChanged:
            values["phase"] = Phase(values["phase"])
        elif cls is Failed:
            values["chain"] = [
                Raised(**{**link, "frames": [Frame(**frame) for frame in link["frames"]]}) for link in values["chain"]
            ]
        return cls(**values)
    except (TypeError, ValueError, KeyError) as error:
        raise StreamError(f"a malformed {cls.kind!r} event: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, (Raised, Frame)):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.value
    return value
