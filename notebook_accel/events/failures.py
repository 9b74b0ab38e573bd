"""How a call fails on a rank, and what its memory held then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from notebook_accel.events.base import Blobs, Event, Frame


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
