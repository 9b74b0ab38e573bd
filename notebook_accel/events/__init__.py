"""Events: the messages between a rank and its driver, and the entries of a job's journal.

Each event is a frozen dataclass. The sockets, the journal, a job's state and the views all use these same objects.

    base.py               ─ `Event`, and the types that events share
    ranks.py              ─ what a rank reports: output, bars, metrics, phases, its result
    failures.py           ─ how a call fails on a rank, and what its memory held then
    reports.py            ─ many reports of metrics, packed
    jobs.py               ─ what the driver records about a job, or about a rank from outside
    requests.py           ─ what is sent to a rank
    profiles.py           ─ the request to profile training steps, and its reply
    usage.py              ─ what a rank uses, as seen from outside
    control.py            ─ pausing and changing a training, step by step the same on all ranks
    collective_records.py ─ the request for the last collectives, and its reply
    debugging.py          ─ requests to the debugger of a rank, and its replies
    encoding.py           ─ events as JSON objects with binary blobs, and back
    emit.py               ─ how code on a rank emits an event without knowing how the rank was launched

To add an event: write its class, with a new `kind`, in the file of its sender, and export it here. `encoding.py` finds
it there; a field that JSON does not have needs a row in `NESTED_FIELDS`. The state that it changes applies it:
`launch/job/rank_state.py` for a rank, `launch/job/job_state.py` for the whole job.
"""

from notebook_accel.events.base import Blobs, Event, Frame, Phase, as_float
from notebook_accel.events.collective_records import Collective, CollectivesRecorded, CollectivesRequested
from notebook_accel.events.control import (
    Control,
    Controlled,
    ControlsChanged,
    StepPromised,
    StepRequested,
    TunableChanged,
)
from notebook_accel.events.debugging import DebugReplied, DebugRequested
from notebook_accel.events.emit import (
    answers,
    emit,
    has_sink,
    last_step_times,
    request_input,
    request_name,
    set_sink,
    step_clock,
    step_control,
    step_part,
    training_is_paused,
    training_step,
)
from notebook_accel.events.encoding import from_wire, is_sound, to_wire
from notebook_accel.events.failures import Failed, LargestArrays, LiveArray, MemorySnapshot, OutOfMemory, Raised
from notebook_accel.events.jobs import (
    AttemptStarted,
    CheckpointSaved,
    JobEnded,
    JobStarted,
    LinesLeftOut,
    Location,
    NodeLeaving,
    Notice,
    Seeded,
    Signalled,
    SnapshotSaved,
    Stalled,
    StopRequested,
    TrainingStarted,
)
from notebook_accel.events.profiles import Profiled, ProfileRequested
from notebook_accel.events.ranks import (
    Bar,
    Cleared,
    Exited,
    Heartbeat,
    Hello,
    HotLine,
    InputRequested,
    Line,
    MemoryPeaks,
    Metrics,
    NameRequested,
    PhaseChanged,
    RankExited,
    Returned,
    Sampled,
    Shown,
    Stacks,
    StepTimes,
    ThreadStack,
    Written,
)
from notebook_accel.events.reports import Report, Reports
from notebook_accel.events.requests import (
    Answer,
    Call,
    Disconnect,
    Interrupt,
    NameAnswered,
    Preempt,
    SamplesRequested,
    StacksRequested,
)
from notebook_accel.events.usage import GpuUsage, ProcessUsage

__all__ = [
    "Answer",
    "AttemptStarted",
    "Bar",
    "Blobs",
    "Call",
    "CheckpointSaved",
    "Cleared",
    "Collective",
    "CollectivesRecorded",
    "CollectivesRequested",
    "Control",
    "Controlled",
    "ControlsChanged",
    "DebugReplied",
    "DebugRequested",
    "Disconnect",
    "Event",
    "Exited",
    "Failed",
    "Frame",
    "GpuUsage",
    "Heartbeat",
    "Hello",
    "HotLine",
    "InputRequested",
    "Interrupt",
    "JobEnded",
    "JobStarted",
    "LargestArrays",
    "Line",
    "LinesLeftOut",
    "LiveArray",
    "Location",
    "MemoryPeaks",
    "MemorySnapshot",
    "Metrics",
    "NameAnswered",
    "NameRequested",
    "NodeLeaving",
    "Notice",
    "OutOfMemory",
    "Phase",
    "PhaseChanged",
    "Preempt",
    "ProcessUsage",
    "ProfileRequested",
    "Profiled",
    "Raised",
    "RankExited",
    "Report",
    "Reports",
    "Returned",
    "Sampled",
    "SamplesRequested",
    "Seeded",
    "Shown",
    "Signalled",
    "SnapshotSaved",
    "Stacks",
    "StacksRequested",
    "Stalled",
    "StepPromised",
    "StepRequested",
    "StepTimes",
    "StopRequested",
    "ThreadStack",
    "TrainingStarted",
    "TunableChanged",
    "Written",
    "answers",
    "as_float",
    "emit",
    "from_wire",
    "has_sink",
    "is_sound",
    "last_step_times",
    "request_input",
    "request_name",
    "set_sink",
    "step_clock",
    "step_control",
    "step_part",
    "to_wire",
    "training_is_paused",
    "training_step",
]
