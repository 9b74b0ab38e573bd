"""What was done to a job while it ran, as lines of text."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from notebook_accel.events import Controlled
from notebook_accel.events.control import CHECKPOINT, END_AFTER_EPOCH, PAUSE, RESUME
from notebook_accel.launch.job.text import clock

if TYPE_CHECKING:
    from notebook_accel.launch.job.job_state import JobState

_MOST = 4


def lines(job: JobState) -> list[str]:
    """The last changes, one a line, the oldest first; `lr 0.1 → 0.01 after step 120`."""
    found: list[str] = []
    pause: tuple[int, Controlled] | None = None
    for change in job.changes:
        if change.action == RESUME and pause is not None:
            index, paused = pause
            found[index] = f"paused for {clock(change.at - paused.at)}{_after(paused)}"
            pause = None
            continue
        if change.action == PAUSE:
            pause = len(found), change
        found.append(line(change))
    left_out = len(found) - _MOST
    earlier = [f"{left_out} earlier change{'s' if left_out > 1 else ''}"] if left_out > 0 else []
    return [*earlier, *found[-_MOST:]]


def line(change: Controlled) -> str:
    """One change."""
    if change.action == PAUSE:
        return f"paused{_after(change)}"
    if change.action == RESUME:
        return f"resumed{_after(change)}"
    if change.action == CHECKPOINT:
        return f"saved {PurePath(change.detail).name}, as requested"
    if change.action == END_AFTER_EPOCH:
        return f"ends after {change.detail}, as requested"
    tuned = ", ".join(_tuned(name, change.before.get(name), value) for name, value in change.values.items())
    return f"{tuned}{_after(change)}"


def _tuned(name: str, before: float | None, value: float) -> str:
    return f"{name} → {value:g}" if before is None else f"{name} {before:g} → {value:g}"


def _after(change: Controlled) -> str:
    return "" if change.step < 0 else f" after step {change.step}"
