"""Shows a job in a terminal: a row for each rank, redrawn in place with rich, below the ranks' output."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from notebook_accel.events import Phase
from notebook_accel.launch.job import describe, progress
from notebook_accel.launch.job.headline import rank_line
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.job.text import value

_INTERVAL = 0.1
"""Seconds between two redraws."""
_AFTER_PROMPT = 1.0
"""Seconds after an answer in which nothing is drawn, since a debugger prompts again at once."""
_BAR_WIDTH = 24
_COLORS = {Phase.FAILED: "red", Phase.DONE: "green", Phase.STOPPED: "yellow"}
_RUNNING = "blue"

_showing: TerminalView | None = None
"""The view at the end of the screen; a job that runs at the same time is drawn when it is over."""


class TerminalView:
    """Draws a job while it runs, and leaves its last state on the screen."""

    is_seen = True

    def __init__(self, job: Job) -> None:
        global _showing  # there is one screen
        self._job = job
        self._drawn = 0.0
        self._console = Console(stderr=True, highlight=False)
        self._live: Live | None = None
        if _showing is None:
            _showing = self
            self._start()

    def _start(self) -> None:
        self._live = Live(
            "",
            console=self._console,
            auto_refresh=False,
            redirect_stdout=sys.stdout.isatty(),  # lines go above; in a file they stay as they are
        )
        self._live.start()

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Leaves what is drawn, and draws the job below what is written in the meantime."""
        if self._live is not None:
            self._live.update(draw(self._job), refresh=True)
            self._live.stop()
            self._live = None
        try:
            yield
        finally:
            self._start()
            self._drawn = time.monotonic() + _AFTER_PROMPT

    def refresh(self) -> None:
        now = time.monotonic()
        if self._live is not None and now - self._drawn >= _INTERVAL:
            self._drawn = now
            self._live.update(draw(self._job), refresh=True)

    def finish(self) -> None:
        global _showing
        if self._live is None:
            self._console.print(draw(self._job))
            return
        self._live.update(draw(self._job), refresh=True)
        self._live.stop()
        self._live, _showing = None, None


def held() -> contextlib.AbstractContextManager[None]:
    """Draws nothing while the user is prompted, and shortly afterwards."""
    return contextlib.nullcontext() if _showing is None else _showing.hold()


def draw(job: Job) -> RenderableType:
    """The current state of the job; empty if it ended before there was anything to show."""
    if progress.is_brief(job):
        return Text("" if job.status.ended else describe.headline(job), end="")
    if len(job.ranks) >= progress.COMPACT_FROM:
        return Text(describe.describe(job))
    rows, waits = Table.grid(padding=(0, 2)), progress.waits(job)
    for host, states in progress.by_host(job, progress.failed_first(job)):
        if host:
            rows.add_row(Text(host, style="dim"))
        for state in states:
            rows.add_row(*_cells(state, waits=waits))
    first, *others = describe.heading(job)
    return Group(Text(first, style="bold"), *map(Text, others), rows)


def _cells(state: RankState, *, waits: bool) -> list[RenderableType]:
    line = rank_line(state, waits=waits)
    bar: RenderableType = ""
    if line.done is not None:
        color = _COLORS.get(state.phase, _RUNNING)
        bar = ProgressBar(total=1, completed=line.done, width=_BAR_WIDTH, complete_style=color, finished_style=color)
    metrics = "  ".join(f"{name}={value(number)}" for name, number in state.metrics.items())
    return [
        f"rank {state.rank}",
        Text(state.phase.value, style=_COLORS.get(state.phase, "")),
        bar,
        Text(line.error) if line.error else Text(line.text, no_wrap=True, overflow="ellipsis"),
        Text(metrics, no_wrap=True, overflow="ellipsis"),
        describe.load(state),
    ]
