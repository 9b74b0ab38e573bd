"""Shows what the ranks write, and passes the lines on to the job."""

from __future__ import annotations

import time
from collections.abc import Callable

from notebook_accel.events import Cleared, Event, Line, LinesLeftOut, Shown, Written
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.show.output import Output

_MAX_LINES = 300
"""The most lines of one read that become events of the job. All of them are shown, and in its log."""


class OutputLines:
    """The output of the ranks of one call, by local rank.

    Args:
        job: Has their global ranks.
        output: Shows what they write.
        apply: Takes the lines as events.
    """

    def __init__(self, job: Job, output: Output, apply: Callable[[int, Event], object]) -> None:
        self._job = job
        self._output = output
        self._apply = apply

    def add(self, rank: int, written: Written) -> None:
        """Adds what a rank wrote."""
        data = b"".join(written.data)
        self._record(
            rank, written.stream, self._output.feed(self._global(rank), written.stream, data, time.monotonic())
        )

    def flush(self, rank: int) -> None:
        """Treats an unfinished last line as a line, since nothing more comes."""
        self._record(rank, "stdout", self._output.end(self._global(rank), time.monotonic()))

    def display(self, rank: int, event: Shown | Cleared) -> None:
        """Shows a rich output in its place among the rank's lines."""
        self._output.display(self._global(rank), event, time.monotonic())

    def _record(self, rank: int, stream: str, lines: list[str]) -> None:
        self._job.output_log.add(self._global(rank), stream, time.time() - self._job.started, lines)
        if len(lines) > _MAX_LINES:
            self._job.apply(rank, LinesLeftOut(len(lines) - _MAX_LINES))
        for text in lines[-_MAX_LINES:]:
            self._apply(rank, Line(stream, text))

    def _global(self, rank: int) -> int:
        return self._job.ranks[rank].rank
