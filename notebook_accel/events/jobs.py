"""Events that the driver records about a job, or about a rank as seen from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from notebook_accel.events.base import Event, Frame, Phase


@dataclass(frozen=True)
class JobStarted(Event):
    """A job begins. The first of its events."""

    kind = "job"
    id: str
    name: str
    """The name of the launched function."""
    first: int
    """The global rank of the first rank that this driver runs."""
    size: int
    """The number of ranks that this driver runs."""
    world_size: int
    """The number of ranks on all nodes."""
    hardware: str
    """The devices that the ranks run on, as text."""
    label: str | None
    """The template for the label of output lines, if not the usual one."""
    at: float
    """Seconds since the epoch."""
    local_size: int = 0
    """Ranks on each node of a cluster; 0 if all of them are on this machine."""
    notice: str = ""
    """Choices that were made for the user, one per line."""
    devices: Sequence[str] = ()
    """The devices that the ranks use, as in `Plan.device_ids`."""
    title: str = ""
    """What the user calls the job; empty if it is called as its function."""
    notes: str = ""
    """The user's notes about it."""
    call: str = ""
    """The function with its arguments, as text."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Each argument as text, by the name of its parameter, also those that have their defaults."""
    versions: str = ""
    """The versions of Python, torch and this package."""
    checkpoint_dir: str = ""
    """The absolute path of the folder that it saves checkpoints to; empty if it can't be resumed in another kernel."""
    part_of: str = ""
    """The ID of the sweep that it is a trial of; empty if it is none."""
    co2_per_kwh: float | None = None
    """Grams of CO₂ that a kilowatt-hour causes where it runs, as its user has said."""


@dataclass(frozen=True)
class AttemptStarted(Event):
    """The whole group of ranks starts, for the first time or after a failure."""

    kind = "attempt"
    attempt: int
    """0 for the first."""
    size: int = 0
    """The number of ranks that this driver runs; 0 if it is that of `JobStarted`."""
    reached: int | None = None
    """How many steps the previous attempt had done, if it is known."""
    devices: Sequence[str] = ()
    """The devices that the ranks use; empty if they are those of `JobStarted`."""


@dataclass(frozen=True)
class DevicesAwaited(Event):
    """The job waits until its devices are free; the next attempt ends that."""

    kind = "devices awaited"
    what: str
    """What it waits for, in words such as `for train() of this notebook`; empty once it need not wait any longer."""


@dataclass(frozen=True)
class TrainingStarted(Event):
    """The loop over `Accelerator.epochs` starts. A rank emits it, and the driver records it for the job."""

    kind = "training"
    step: int
    """How many steps are done: 0, or those of the checkpoint that the training resumes from."""


@dataclass(frozen=True)
class CheckpointSaved(Event):
    """A checkpoint is complete. Rank 0 emits it, and the driver records it for the job."""

    kind = "checkpoint saved"
    step: int
    """How many steps were done then."""


@dataclass(frozen=True)
class Seeded(Event):
    """The random states were seeded, by `set_seed`. A rank emits it, and the driver records it for the job."""

    kind = "seeded"
    seed: int
    """That of rank 0 if each rank has its own."""


@dataclass(frozen=True)
class Signalled(Event):
    """The rank was sent a signal to end it."""

    kind = "signalled"
    signal: int
    """Its number."""


@dataclass(frozen=True)
class NodeLeaving(Event):
    """The node of the rank shuts down, so that it will not be there for another attempt."""

    kind = "node leaving"


@dataclass(frozen=True)
class SnapshotSaved(Event):
    """The snapshot of the memory of a rank's devices was saved."""

    kind = "snapshot saved"
    path: str


@dataclass(frozen=True)
class Remarked(Event):
    """A line for the job's notes that came while it ran, such as who asked to stop it."""

    kind = "remark"
    text: str


@dataclass(frozen=True)
class StopRequested(Event):
    """Somebody requested that the job stop."""

    kind = "stop"
    times: int
    """How many requests there were so far. The second one kills the ranks."""


@dataclass(frozen=True)
class Location:
    """What one rank is doing, and at which line of the user's code."""

    rank: int
    phase: Phase
    doing: str = ""
    """The collective or function that it is in, if known."""
    where: str = ""
    """The line of the user's code: `In[5] line 12`."""
    frames: Sequence[Frame] = ()
    """The stack of its main thread, outermost frame first."""


@dataclass(frozen=True)
class Stalled(Event):
    """Ranks wait, and none has made progress for `stall_after` seconds. Without `places`: progress has resumed."""

    kind = "stalled"
    places: Sequence[Location]
    """The location of every rank that this driver runs."""
    since: float = 0.0
    """When a rank last made progress, in seconds since the epoch."""
    elsewhere: int = 0
    """The number of ranks on other nodes, about which this driver knows nothing."""
    mismatch: str = ""
    """Where ranks are in different collectives; empty if they aren't, or if it is unknown."""


@dataclass(frozen=True)
class Notice(Event):
    """A line of text from this package, shown to the user with the job's output."""

    kind = "notice"
    text: str


@dataclass(frozen=True)
class JobEnded(Event):
    """The job ended. The last of its events."""

    kind = "end"
    status: str
    """The value of the job's `Status`."""
    at: float
    """Seconds since the epoch."""
    error: str = ""
    """The text of the error that `Job.result` raises."""
    error_type: str = ""
    """The name of that error's class."""
