"""The stacks of a job's ranks, as `job.stacks()` returns them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from notebook_accel.events import Location, ThreadStack
from notebook_accel.launch.job import location
from notebook_accel.launch.wire import stack_frames

StacksByRank = Mapping[int, Sequence[ThreadStack]]
"""The threads of each rank that reported them, by its index in the job."""


@dataclass(frozen=True, repr=False)
class JobStacks:
    """The stacks of a job's ranks at the time of the request; prints as text."""

    places: Sequence[Location]
    """The location of every rank; prints as one line each."""
    threads: Mapping[int, Sequence[ThreadStack]]
    """Each rank's threads, the main one first, by its global rank. A rank that reported none is missing."""
    note: str = ""
    """Why there are no stacks."""

    def __repr__(self) -> str:
        parts = [self.note] if self.note else []
        for each in self.places:
            threads = self.threads.get(each.rank, ())
            shown = [_thread(thread) for thread in threads if thread.frames]
            parts.append("\n".join([location.sentence([each]) + (":" if shown else ""), *shown]))
        return "\n\n".join(parts)


def _thread(thread: ThreadStack) -> str:
    text = stack_frames.format_frames(thread.frames)
    return text if thread.main else f"in {thread.name}:\n{text}"
