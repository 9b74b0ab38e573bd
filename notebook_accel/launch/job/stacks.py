"""The stacks of a job's ranks, as `job.stacks()` returns them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from notebook_accel.events import Location, ThreadStack
from notebook_accel.launch.job import location
from notebook_accel.launch.wire import frames

StacksByRank = Mapping[int, Sequence[ThreadStack]]
"""The threads of each rank that has told them, by its number on this machine."""


@dataclass(frozen=True, repr=False)
class JobStacks:
    """Where each rank of a job was when it was asked; prints as text."""

    places: Sequence[Location]
    """Of every rank, in one line each."""
    threads: Mapping[int, Sequence[ThreadStack]]
    """The stacks of each rank's threads, the main one first, by its global number. One that tells none is missing."""
    note: str = ""
    """Why there is nothing to tell."""

    def __repr__(self) -> str:
        parts = [self.note] if self.note else []
        for place in self.places:
            threads = self.threads.get(place.rank, ())
            shown = [_thread(thread) for thread in threads if thread.frames]
            parts.append("\n".join([location.sentence([place]) + (":" if shown else ""), *shown]))
        return "\n\n".join(parts)


def _thread(thread: ThreadStack) -> str:
    text = frames.format_frames(thread.frames)
    return text if thread.main else f"in {thread.name}:\n{text}"
