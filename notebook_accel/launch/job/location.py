"""Where the ranks are, as text: the lines that they are at, what they wait for, and their stacks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from notebook_accel.events import Location, Phase, PhaseChanged, ThreadStack
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.job.text import duration
from notebook_accel.launch.wire import stack_frames
from notebook_accel.rank_spans import spans

if TYPE_CHECKING:
    from notebook_accel.launch.job.job_state import JobState

# The phrase for each phase, for one rank and for several. What it does and where follows, if known.
_PHRASES = {
    Phase.STARTING: ("has not started", "have not started"),
    Phase.IDLE: ("has not begun", "have not begun"),
    Phase.LOADING: ("still loads the function", "still load the function"),
    Phase.RUNNING: ("is", "are"),
    Phase.WAITING: ("waits", "wait"),
    Phase.PAUSED: ("is paused", "are paused"),
    Phase.DONE: ("has returned", "have returned"),
    Phase.FAILED: ("has failed", "have failed"),
    Phase.STOPPED: ("was stopped", "were stopped"),
}
_HAS_LOCATION = (Phase.RUNNING, Phase.WAITING)
StacksByRank = Mapping[int, Sequence[ThreadStack]]
"""The threads of each rank that reported them, by its index in the job."""


def of(state: RankState, threads: Sequence[ThreadStack]) -> Location:
    """The location of one rank, from its stacks if it has any, otherwise from its last report."""
    doing, _, where = state.detail.partition(" at ")
    main = next((thread for thread in threads if thread.main), None)
    if main is None:
        return Location(state.rank, state.phase, doing, where)
    at = stack_frames.innermost_user_frame(main.frames)
    if not state.is_importing and state.phase in _HAS_LOCATION:
        found, _ = stack_frames.outermost_collective((frame.filename, frame.name) for frame in reversed(main.frames))
        doing = found or main.call
    where = stack_frames.where(at) if at else ""
    return Location(state.rank, state.phase, doing, where, stack_frames.with_sources(main.frames))


def with_location(event: PhaseChanged) -> PhaseChanged:
    """Adds the line, in the notebook's own names for its cells, to the detail of a phase."""
    if event.frame is None:
        return event
    return replace(event, detail=f"{event.detail} at {stack_frames.where(event.frame)}")


def groups(locations: Iterable[Location]) -> list[list[Location]]:
    """Groups the locations of ranks that are doing the same thing at the same line."""
    found: dict[object, list[Location]] = {}
    for each in locations:
        found.setdefault((each.phase, each.doing, each.where), []).append(each)
    return list(found.values())


def sentence(group: Sequence[Location]) -> str:
    """The clause for one group of ranks."""
    first, several = group[0], len(group) > 1
    ranks = f"ranks {spans(each.rank for each in group)}" if several else f"rank {first.rank}"
    if first.phase is Phase.RUNNING and not (first.doing or first.where):
        return f"{ranks} {'do' if several else 'does'} not say where {'they are' if several else 'it is'}"
    text = f"{ranks} {_PHRASES[first.phase][several]}"
    if first.phase is Phase.LOADING and first.doing:
        return f"{text}: {first.doing}"
    if first.phase not in _HAS_LOCATION:
        return text
    at = stack_frames.innermost_user_frame(first.frames)
    if first.doing:
        text += f" in {first.doing}"
    if first.where:
        text += f" at {first.where}"
    if not first.doing and at is not None and at.line:
        text += f" (`{at.line}`)"
    return text


def stacks(locations: Iterable[Location]) -> list[tuple[list[int], str]]:
    """The stacks of main threads, a line for each frame, each with the ranks that share it."""
    found: dict[str, list[int]] = {}
    for each in locations:
        if each.frames:
            found.setdefault(stack_frames.outline(each.frames), []).append(each.rank)
    return [(ranks, stack) for stack, ranks in found.items()]


def explain(job: JobState) -> str:
    """A paragraph that explains why a job is stalled; empty for a job that is not."""
    stalled = job.stalled
    if stalled is None:
        return ""
    found = groups(stalled.places)
    seconds = duration(max(0.0, (job.ended or time.time()) - stalled.since))
    text = "; ".join(sentence(group) for group in found)
    mismatch = f"; {stalled.mismatch}" if stalled.mismatch else ""
    return f"no progress for {seconds}: {text}{_conclusion(found, stalled.elsewhere)}{mismatch}"


def _conclusion(groups: Sequence[Sequence[Location]], elsewhere: int) -> str:
    """Why the job is stalled, if that is certain: if every rank waits or has ended."""
    phases = {group[0].phase for group in groups}
    ranks = sum(map(len, groups))
    if any(not phase.ended and phase is not Phase.WAITING for phase in phases):
        return ""
    if elsewhere:
        return f"; {elsewhere} ranks are on other machines"
    if phases != {Phase.WAITING}:
        return ": no other rank will join"
    if len(groups) > 1:
        return ": they wait for each other forever"
    return ": perhaps one of them has called it one more time, or in another group" if ranks > 1 else ""


def stalled_stacks(job: JobState) -> list[tuple[list[int], str]]:
    """The stacks of a stalled job's ranks as text, each with the ranks that share it."""
    return [] if job.stalled is None else stacks(job.stalled.places)


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
            parts.append("\n".join([sentence([each]) + (":" if shown else ""), *shown]))
        return "\n\n".join(parts)


def _thread(thread: ThreadStack) -> str:
    text = stack_frames.format_frames(thread.frames)
    return text if thread.main else f"in {thread.name}:\n{text}"
