"""Samples of stacks as a tree of calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from notebook_accel.events import Frame, Sampled
from notebook_accel.launch.system import installed
from notebook_accel.launch.wire import cell_names, collective_in_stack, stack_frames


@dataclass
class Call:
    """A function that was called from the same place, with what it called in turn."""

    frame: Frame | None
    """`None` for the root."""
    own: float = 0.0
    """Seconds in which it was the innermost call."""
    total: float = 0.0
    """Seconds in it and in what it called."""
    collective: float = 0.0
    """Seconds of these in a collective operation that this call is a part of."""
    children: dict[tuple[str, int, str], Call] = field(default_factory=dict)

    @property
    def is_collective(self) -> bool:
        """Whether its time is that of a collective operation."""
        return self.collective > self.total / 2

    @property
    def by_time(self) -> list[Call]:
        """What it called, the longest first."""
        return sorted(self.children.values(), key=lambda call: -call.total)

    def walk(self) -> Iterator[Call]:
        """This call, and all below it."""
        calls = [self]
        while calls:
            yield (call := calls.pop())
            calls += call.children.values()


def build(samples: Iterable[Sampled]) -> Call:
    """The tree of the samples of one rank, or of several ranks added up."""
    root = Call(None)
    for sampled in samples:
        _add(root, sampled)
    return root


def _add(root: Call, sampled: Sampled) -> None:
    calls: list[Call] = []
    for frame, caller, microseconds in zip(sampled.frames, sampled.callers, sampled.microseconds, strict=True):
        above = calls[caller] if caller >= 0 else root
        call = above.children.setdefault((frame.filename, frame.lineno, frame.name), Call(frame))
        calls.append(call)
        if microseconds:
            _add_time(root, _path(sampled, calls), microseconds / 1e6)


def _path(sampled: Sampled, calls: list[Call]) -> list[Call]:
    """The stack of the last of the calls, the innermost first."""
    found, number = [], len(calls) - 1
    while number >= 0:
        found.append(calls[number])
        number = sampled.callers[number]
    return found


def _add_time(root: Call, stack: list[Call], seconds: float) -> None:
    stack[0].own += seconds
    name, index = collective_in_stack.outermost(
        (call.frame.filename, call.frame.name) for call in stack if call.frame is not None
    )
    for position, call in enumerate([*stack, root]):
        call.total += seconds
        if name and position <= index:
            call.collective += seconds


def in_collectives(root: Call) -> float:
    """Seconds in collective operations."""
    found, calls = 0.0, [root]
    while calls:
        call = calls.pop()
        if call.is_collective:
            found += call.collective
        else:
            calls += call.children.values()
    return found


def label(frame: Frame) -> str:
    """`train, In[3] line 12`: the function and the place, as tracebacks name it."""
    return f"{frame.name}, {installed.short(stack_frames.where(frame))}"


def is_users(frame: Frame) -> bool:
    """Whether the code is the user's own."""
    return cell_names.name_of(frame.filename) != frame.filename or stack_frames.is_user_file(frame.filename)
