"""What is said to a rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from notebook_accel.events.base import Event


@dataclass(frozen=True)
class Call(Event):
    """Run this. The payload's parts travel with it, or the descriptor of a file that has them."""

    kind = "call"
    layout: Sequence[int]
    """Lengths in bytes of the payload's parts; in a file, each part begins on a page boundary."""


@dataclass(frozen=True)
class StacksRequested(Event):
    """Tell where each of your threads is."""

    kind = "stacks-wanted"
    number: int
    """Of the question; the answer has the same."""


@dataclass(frozen=True)
class Answer(Event):
    """The line that the rank has asked for."""

    kind = "answer"
    text: str | None
    """`None`: there is nobody who could be asked."""


@dataclass(frozen=True)
class Interrupt(Event):
    """Raise `KeyboardInterrupt` in the function: for a rank that is a thread, which no signal reaches."""

    kind = "interrupt"


@dataclass(frozen=True)
class Disconnect(Event):
    """Cut your connections to the other ranks, whatever waits on them."""

    kind = "disconnect"
