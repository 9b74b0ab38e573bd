"""Events that the driver sends to a rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from notebook_accel.events.base import Event


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
    """End a training that can be resumed after its next step, with a checkpoint; interrupt any other function."""

    kind = "preempt"
    reason: str


@dataclass(frozen=True)
class Disconnect(Event):
    """Close the connections to the other ranks, so that a collective that waits on them fails at once."""

    kind = "disconnect"
