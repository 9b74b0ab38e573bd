"""What a rank can say, and what can be seen of it and of its job: the one vocabulary of the package.

Each event is a frozen dataclass. The stream, the journal, the job and the views all have these same objects.

    base.py     ─ what all are made of
    ranks.py    ─ what a rank says
    jobs.py     ─ what is noted of a job by whoever runs it
    requests.py ─ what is said to a rank
    wire.py     ─ events as JSON objects with binary blobs, and back
    emitting.py ─ how code that knows nothing of launches says something
"""

from notebook_accel.events.base import Blobs, Event, Frame, Phase
from notebook_accel.events.emit import emit, has_sink, input_answers, request_input, set_sink
from notebook_accel.events.encoding import from_wire, to_wire
from notebook_accel.events.jobs import (
    AttemptStarted,
    History,
    JobEnded,
    JobStarted,
    LinesLeftOut,
    Location,
    Notice,
    Signalled,
    Stalled,
    StopRequested,
)
from notebook_accel.events.ranks import (
    Bar,
    Exited,
    Failed,
    Heartbeat,
    Hello,
    InputRequested,
    Line,
    Metrics,
    PhaseChanged,
    Raised,
    Returned,
    Shown,
    Stacks,
    ThreadStack,
)
from notebook_accel.events.requests import Answer, Call, Disconnect, Interrupt, StacksRequested

__all__ = [
    "Answer",
    "AttemptStarted",
    "Bar",
    "Blobs",
    "Call",
    "Disconnect",
    "Event",
    "Exited",
    "Failed",
    "Frame",
    "Heartbeat",
    "Hello",
    "History",
    "InputRequested",
    "Interrupt",
    "JobEnded",
    "JobStarted",
    "Line",
    "LinesLeftOut",
    "Location",
    "Metrics",
    "Notice",
    "Phase",
    "PhaseChanged",
    "Raised",
    "Returned",
    "Shown",
    "Signalled",
    "Stacks",
    "StacksRequested",
    "Stalled",
    "StopRequested",
    "ThreadStack",
    "emit",
    "from_wire",
    "has_sink",
    "input_answers",
    "request_input",
    "set_sink",
    "to_wire",
]
