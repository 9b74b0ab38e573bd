"""Events about a rank: what it reports to its driver, how a call fails on it, and what it uses, read from outside."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from notebook_accel.events.base import Blobs, Event, Frame, Phase


@dataclass(frozen=True)
class Hello(Event):
    """The rank's process is ready for a call."""

    kind = "hello"
    pid: int
    host: str


@dataclass(frozen=True)
class PhaseChanged(Event):
    """The rank entered another phase."""

    kind = "phase"
    phase: Phase
    detail: str = ""
    """What it does in that phase, such as the collective it waits in; the driver adds the line of the user's code."""
    frame: Frame | None = None
    """The line of the user's code that it is at, sent with `Phase.WAITING`."""
    since: float = 0.0
    """When it began to import, in seconds since the epoch; 0 if it doesn't."""


@dataclass(frozen=True)
class Saving(Event):
    """The rank begins to save a checkpoint for which its training waits, or is done with it."""

    kind = "saving"
    is_on: bool


@dataclass(frozen=True)
class Bar(Event):
    """The latest state of one progress bar."""

    kind = "bar"
    bar: int
    """Identifies the bar within its rank."""
    n: float
    """How many units are done."""
    total: float | None = None
    """How many there are; `None` if that is unknown."""
    description: str = ""
    unit: str = "it"
    rate: float | None = None
    """Units a second."""
    elapsed: float = 0.0
    """Seconds."""
    at: float = 0.0
    """When it was reported, in seconds on the rank's monotonic clock."""
    postfix: str = ""
    """What the bar shows after its numbers, such as `loss=0.3`."""
    depth: int = 0
    """How many bars enclose this one."""
    closed: bool = False
    leave: bool = True
    """Whether it stays visible after it is closed."""
    counts: str = ""
    """`epochs`: those of the whole training; `batches`: those of one pass over a loader; empty for a bar that the user
    draws."""
    initial: float = 0.0
    """The units that were done before it began, such as those of a training run that resumes."""
    passes: int = 0
    """How many bars that count as much have been there before it; only for an outermost bar."""
    weight: float = 1.0
    """How much of a unit of the bar around it this bar stands for, as a fraction."""
    part: float = 0.0
    """How much of its current unit bars inside it have done that are closed, as a fraction."""


@dataclass(frozen=True)
class Metrics(Event):
    """Numbers that the user logged at once. Ranks send several together, as `Reports`."""

    kind = "metrics"
    values: Mapping[str, float]
    """By name."""
    step: int | None = None
    """The training step that they belong to, if the user gave one."""
    at: float = field(default_factory=time.time)
    """Seconds since the epoch."""


@dataclass(frozen=True)
class Lines(Event):
    """Lines that a rank wrote together, without their newlines."""

    kind = "lines"
    stream: str
    """`stdout` or `stderr`."""
    texts: Sequence[str]
    at: float = 0.0
    """Seconds since the epoch."""


@dataclass(frozen=True)
class Written(Event):
    """The rank, or a process that it has started, has written to its standard output or error."""

    kind = "written"
    stream: str
    """`stdout` or `stderr`."""
    data: Blobs = field(default=(), repr=False)
    """The bytes, in any number of parts. They may end anywhere, also within a character."""


@dataclass(frozen=True)
class Heartbeat(Event):
    """The rank's process is alive and holds this much memory."""

    kind = "heartbeat"
    resident: int
    """Resident memory of the process, in bytes."""
    device_used: int | None = None
    """Memory held on the rank's device, in bytes; `None` without a device, or if it is not in use yet."""
    device_total: int | None = None
    """All memory of that device, in bytes."""
    step: int | None = None
    """How many steps the training has done; `None` if it cannot be resumed."""
    at: float = 0.0
    """Seconds since the epoch."""


@dataclass(frozen=True)
class ResidentHistory(Event):
    """The resident memory that heartbeats have reported, thinned."""

    kind = "resident history"
    moments: Sequence[int]
    """Milliseconds since the epoch: integers take a quarter of the time to write."""
    resident: Sequence[int]
    """Bytes at each of them."""


@dataclass(frozen=True)
class MemoryPeaks(Event):
    """The most memory that the rank was seen to hold in each phase, as sampled ten times a second."""

    kind = "memory peaks"
    resident: Mapping[str, int]
    """Resident memory in bytes, by the part of a training step, otherwise by the rank's phase."""
    device: Mapping[str, int]
    """Bytes of its tensors on its CUDA device, as above; empty without one."""


@dataclass(frozen=True)
class EnergyUsed(Event):
    """What the devices that a rank runs on have used since soon after its call began, for whatever ran on them.

    Of a job: what earlier attempts have used.
    """

    kind = "energy"
    gpus: Mapping[str, float]
    """Joules of the whole GPU, by its UUID; empty if they are not counted."""
    packages: Mapping[str, float]
    """Joules of the machine's processors and the memory at them, by a name that no other machine has."""
    seconds: float
    """How long they were counted."""
    without_gpu: int = 0
    """Of a job: ranks of an attempt for which no GPU was counted, though one was for others."""
    without_packages: int = 0
    """The same for processors."""


@dataclass(frozen=True)
class HotLine:
    """The line of the user's code on which the ranks' main threads were most often during a part of the steps."""

    part: str
    """The part of a step."""
    where: str
    """The line, such as `In[3] line 12`."""
    source: str
    """Its text."""
    share: float
    """The fraction of the samples in this part that were on the line."""


@dataclass(frozen=True)
class StepTimes(Event):
    """What the rank's training steps have taken so far, all of them but the first."""

    kind = "step times"
    seconds: Mapping[str, float]
    """By part of a step, over the steps that were measured."""
    steps: int
    """How many steps were done."""
    measured: int
    """How many of them were measured: all on a CPU, some on a GPU."""
    samples: int = 0
    """Samples in the measured steps; 0 if the size of a batch is not fixed."""
    backwards: int = 0
    """Backward passes in the measured steps."""
    syncs: int = 0
    """How many of these synchronized gradients between ranks."""
    device: str = "cpu"
    workers: int | None = None
    """Worker processes of the loader; `None` without a prepared loader."""
    threads: int = 1
    """Threads that torch computes with."""
    cores: int = 1
    """CPU cores that the rank may use."""
    local_ranks: int = 1
    """Ranks on its node."""
    core_wait: float = 0.0
    """Seconds, over all steps, for which its main thread was ready to run and had no core."""
    lines: Sequence[HotLine] = ()
    """At most one for each part: the line that most of the samples of the stack were on."""
    unpickling: float = 0.0
    """The fraction of the samples while waiting for data in which it unpickled what loader workers had sent."""
    unused_search: bool = False
    """Whether DDP searches for unused parameters, although all were used."""
    swapped_pages: int = 0
    """Pages that were read back from swap, over all steps."""


@dataclass(frozen=True)
class Returned(Event):
    """The call returned."""

    kind = "returned"
    value: Blobs = field(default=(), repr=False)
    """The pickled value: the stream, then its out-of-band buffers. Empty for `None`."""


@dataclass(frozen=True)
class Exited(Event):
    """The rank's process ended, as its parent reports; or it is about to end, as it reports itself last of all."""

    kind = "exited"
    code: int | None
    """Exit status; `None` if a signal ended it, or if nothing is known."""
    signal: int | None = None
    """The signal that ended it."""
    at: float = 0.0
    """Seconds since the epoch."""
    peak_resident: int | None = None
    """The peak resident memory of the process, in bytes."""
    lost: str = ""
    """The node it was on and why contact with it was lost; empty if it is known how the process ended."""
    crash: str = ""
    """The stacks of its threads that faulthandler wrote when the process crashed; empty if it did not."""


@dataclass(frozen=True)
class Shown(Event):
    """The user's code displayed a rich output, as `IPython.display.display` does."""

    kind = "shown"
    display_id: str | None = None
    """Identifies the output for later updates."""
    update: bool = False
    """Whether it replaces an output that was displayed before, with the same `display_id`."""
    alone: bool = False
    """Whether this is the only rank whose output is shown, so that it needs no label and waits for no other."""
    mark: int = 0
    """The number of its mark in the rank's output pipes; 0 without one. See `launch/wire/pipe_marks.py`."""
    bundle: Blobs = field(default=(), repr=False)
    """One JSON object: `data`, by MIME type, and `metadata`. Empty if this rank's output is not shown."""


@dataclass(frozen=True)
class Cleared(Event):
    """The user's code cleared its output, as `IPython.display.clear_output` does."""

    kind = "cleared"
    wait: bool = False
    """Whether to clear only when the next output is displayed."""
    mark: int = 0
    """As in `Shown`."""


@dataclass(frozen=True)
class InputRequested(Event):
    """The user's code, or the debugger, waits for a line of input."""

    kind = "asked"
    output: str
    """What was written since the last request, to be shown above the prompt."""
    prompt: str
    hidden: bool = False
    """Whether what the user types isn't shown, as a password."""


@dataclass(frozen=True)
class NameRequested(Event):
    """The user's code looks up a name in `__main__` that this rank lacks and the notebook defines."""

    kind = "name-wanted"
    name: str


@dataclass(frozen=True)
class ThreadStack:
    """The Python stack of one thread."""

    name: str
    frames: Sequence[Frame]
    """Outermost first, without the frames of this package."""
    call: str = ""
    """What the user's innermost line calls, as written there: `time.sleep`. Empty if unknown."""
    main: bool = False
    """Whether it is the one that runs the user's function."""


@dataclass(frozen=True)
class Sampled(Event):
    """Where the main thread spent its time: a tree of calls. The reply to `SamplesRequested`.

    The calls are numbered, each after the one that it was called from.
    """

    kind = "sampled"
    number: int
    """The number of the request."""
    frames: Sequence[Frame]
    """The frame of each call. In installed packages and in Python itself, `lineno` is where the function begins."""
    callers: Sequence[int]
    """The number of the call that each was called from; -1 for an outermost call."""
    microseconds: Sequence[int]
    """The time for which each call was the innermost one."""
    samples: int
    seconds: float
    """How long the samples were taken."""
    idle: float
    """Seconds of these in which none of the user's code ran."""
    cpu_seconds: float
    """The CPU time that taking the samples cost."""


@dataclass(frozen=True)
class Stacks(Event):
    """The stack of each thread of the rank: the reply to `StacksRequested`."""

    kind = "stacks"
    number: int
    """The number of the request."""
    threads: Sequence[ThreadStack]


@dataclass(frozen=True)
class Raised:
    """One exception of a chain."""

    type_name: str
    text: str
    """The exception as Python's own traceback ends: type, message, notes."""
    frames: Sequence[Frame]
    link: str = ""
    """How the next, outer exception of the chain came about: `cause`, `context`, or empty for the outermost."""

    @property
    def headline(self) -> str:
        """The first line of its type and message, before which Python puts the indented place of a syntax error."""
        lines = self.text.split("\n")
        return next((line for line in lines if not line.startswith("  ")), lines[0])


@dataclass(frozen=True)
class LiveArray:
    """Tensors and arrays that a rank held, reached through one name."""

    name: str
    """The variable; empty for those that no name reached, such as those that autograd keeps."""
    device: str
    """`cpu`, or such as `cuda:0`."""
    nbytes: int
    what: str
    """Such as `float32 [64, 512]`, or how many there are."""
    frame: Frame | None = None
    """The line that assigned the name, if it is known."""


@dataclass(frozen=True)
class LargestArrays(Event):
    """The largest tensors and arrays of a rank whose process has grown so large that the system may end it."""

    kind = "largest arrays"
    arrays: Sequence[LiveArray]
    resident: int
    """Resident memory of the process then, in bytes."""


@dataclass(frozen=True)
class OutOfMemory:
    """What held the memory when it ran out, as an exception reported."""

    device: str
    """The kind of the device whose memory ran out: `cpu`, or such as `cuda`."""
    arrays: Sequence[LiveArray] = ()
    """The largest on that device, the largest first."""
    note: str = ""
    """What is left to say about the snapshot of the device's memory."""


@dataclass(frozen=True)
class MemorySnapshot(Event):
    """A snapshot of the memory of CUDA devices, as `torch.cuda.memory._dump_snapshot` writes it."""

    kind = "memory snapshot"
    data: Blobs = field(default=(), repr=False)


@dataclass(frozen=True)
class Failed(Event):
    """The call ended in an exception."""

    kind = "failed"
    chain: Sequence[Raised]
    """The exception that was raised comes last, after those that led to it."""
    at: float
    """Seconds since the epoch."""
    stage: str = "running"
    """`loading` (the payload), `running` (the function) or `returning` (its value)."""
    from_peer: bool = False
    """Whether another rank is the cause: a collective failed because its connection was lost."""
    exit_code: int | None = None
    """The code given to `sys.exit`."""
    step: int | None = None
    """How many steps the training had done; `None` if it cannot be resumed."""
    out_of_memory: OutOfMemory | None = None
    """What held the memory, if the exception says that it ran out."""
    exception: Blobs = field(default=(), repr=False)
    """The pickled exception, if it could be pickled."""


@dataclass(frozen=True)
class ProcessUsage(Event):
    """The CPU time and memory of a rank's process and of its child processes, such as the workers of a loader.

    The process that runs the job reads it while somebody looks at the job, as it does `GpuUsage`.
    """

    kind = "process usage"
    cpu: float
    """Percent of one core."""
    resident: int
    """Bytes."""
    children: int = 0
    """How many processes it has started, with those that these have started."""
    children_cpu: float = 0.0
    children_resident: int = 0


@dataclass(frozen=True)
class GpuUsage(Event):
    """What the driver measures on the GPU of a rank, for all processes together; `None` if it doesn't."""

    kind = "gpu usage"
    utilization: float | None = None
    """Percent of the time in which a kernel ran."""
    memory_used: int | None = None
    """Bytes."""
    memory_total: int | None = None
    """Bytes."""
    temperature: float | None = None
    """Degrees Celsius."""
    power: float | None = None
    """Watts."""
    power_limit: float | None = None
    """Watts."""
    throttled: Sequence[str] = ()
    """Why its clock rate is reduced: constants of `hardware/device_probe.py`."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Errors since the job was first shown, by what they are; without those that haven't occurred."""
