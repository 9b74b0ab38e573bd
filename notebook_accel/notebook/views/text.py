"""A job as a few lines of text, drawn in place below the cell: one line a rank."""

from __future__ import annotations

import time

from notebook_accel.events import Bar
from notebook_accel.launch.job import Job, RankState, Status

_BRIEF = 1.0
"""Seconds that a job runs before its ranks are listed: short ones need no more than a line."""
_INTERVAL = 0.5
_WIDTH = 20


class TextView:
    """Draws into one output above what the ranks write, and updates it."""

    def __init__(self, job: Job) -> None:
        from IPython.display import display

        self._job = job
        self._text = describe(job)
        self._handle = display({"text/plain": self._text}, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        self._drawn = time.monotonic()

    def refresh(self) -> None:
        if time.monotonic() - self._drawn >= _INTERVAL:
            self.finish()

    def finish(self) -> None:
        self._drawn = time.monotonic()
        text = describe(self._job)
        if text != self._text:
            self._text = text
            self._handle.update({"text/plain": text}, raw=True)


def describe(job: Job) -> str:
    """The job in a line, and each of its ranks in another."""
    size = len(job.ranks)
    head = f"{job.name}() on {size} rank{'s' if size > 1 else ''}: {job.status.value}"
    if job.attempt:
        head += f", attempt {job.attempt + 1}"
    if job.status is not Status.STARTING:
        head += f", {job.seconds:.{1 if job.seconds < 10 else 0}f} s"
    if job.seconds < _BRIEF:
        return head
    return "\n".join([head, *(_describe_rank(state) for state in job.ranks)])


def _describe_rank(state: RankState) -> str:
    parts = [f"rank {state.rank}", f"{state.phase.value:<8}"]
    open_bars = [bar for bar in state.bars.values() if not bar.closed]
    if open_bars:
        parts.append(_describe_bar(open_bars[0]))
    parts += [f"{name}={value:.4g}" for name, value in state.metrics.items()]
    if state.resident:
        parts.append(f"{state.resident / 2**20:.0f} MB")
    return "  ".join(parts).rstrip()


def _describe_bar(bar: Bar) -> str:
    count = f"{bar.n:g}/{bar.total:g}" if bar.total else f"{bar.n:g}"
    filled = int(_WIDTH * min(1.0, bar.n / bar.total)) if bar.total else 0
    rate = f" {bar.rate:.1f} {bar.unit}/s" if bar.rate else ""
    return f"{bar.description} {'█' * filled}{'░' * (_WIDTH - filled)} {count}{rate}".strip()
