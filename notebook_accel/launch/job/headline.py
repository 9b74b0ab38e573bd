"""A job and its ranks in a few words, made in one place: each view joins those that it has room for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from notebook_accel.launch.job import progress
from notebook_accel.launch.job.progress import Overview
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.job.text import clock, duration, percent
from notebook_accel.rank_spans import counted

if TYPE_CHECKING:
    from notebook_accel.launch.job.job_state import JobState


@dataclass(frozen=True)
class Headline:
    """The words; those that don't apply are empty."""

    ranks: str
    """`4 ranks`."""
    status: str
    """`running`."""
    attempt: str
    """`attempt 2`, unless it is the first."""
    seconds: str
    """How long it has run: in whole seconds while it does, so that a view that is redrawn is calm."""
    done: str
    """`57%`, of the median rank; this and the following only while it runs."""
    place: str
    """`epoch 2/5 › batch 31/47`, of the slowest rank; what the job waits for, before its ranks start."""
    slowest: str
    """`slowest: rank 2, 41%`, if that percentage is not the median's."""
    is_behind: bool
    """Whether the slowest rank is far behind the others."""
    left: str
    """`9 s left`."""


def headline(job: JobState, found: Overview | None = None) -> Headline:
    """The words for a job as it is now; `found` is its progress, if that is at hand."""
    found = found or progress.overview(job)
    live = not job.status.ended
    done = "" if found.done is None or not live else percent(found.done)
    slowest = percent(found.fractions[found.slowest]) if done else ""
    has_slower = slowest != done
    return Headline(
        ranks=counted(len(job.ranks)),
        status=progress.status(job),
        attempt=f"attempt {job.attempt + 1}" if job.attempt else "",
        seconds=clock(job.seconds) if live else duration(job.seconds),
        done=done,
        place=_place(job, found) if live else "",
        slowest=f"slowest: rank {found.slowest}, {slowest}" if has_slower else "",
        is_behind=has_slower and found.is_behind(found.slowest),
        left=f"{clock(found.remaining)} left" if live and found.remaining is not None else "",
    )


def _place(job: JobState, found: Overview) -> str:
    if job.awaits:
        return job.awaits
    rank = found.slowest if found.positions else None
    states = (state for state in job.ranks if rank is None or state.rank == rank)
    return progress.progress(next(states)).place


@dataclass(frozen=True)
class RankLine:
    """The words for one rank; those that don't apply are empty."""

    done: float | None
    """The fraction that is done, if it is known."""
    text: str
    """What it does: its bars, unless it waits for the user."""
    left: str
    """`9 s`, unless it waits."""
    error: str
    """Why it failed."""


def rank_line(state: RankState, *, waits: bool) -> RankLine:
    """The words for a rank as it is now; `waits` is that of the job's overview."""
    shown = progress.progress(state)
    has_estimate = shown.is_whole and not (state.phase.ended or progress.rests(state, waits=waits))
    return RankLine(
        done=progress.fraction(state, shown),
        text=progress.activity(state, shown, waits=waits),
        left=clock(shown.remaining) if has_estimate and shown.remaining is not None else "",
        error=progress.why_failed(state),
    )
