"""What ranks write: from their pipes to the lines that are shown, and those that the job keeps."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial

from notebook_accel.events import Event, Line, LinesLeftOut
from notebook_accel.launch.driver.event_loop import EventLoop
from notebook_accel.launch.driver.group import RankGroup
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.show.output import Output

_READ = 2**20
_MOST_LINES = 300
"""How many of the lines that are read at once the job is told of. All are shown."""


class Pipes:
    """The pipes of the ranks of one call, which are named by their number on this machine.

    Args:
        group: The ranks.
        job: Knows their global numbers.
        output: Shows what they write.
        hearing: Listens to the pipes.
        apply: Takes in what a rank has written, as events.
    """

    def __init__(
        self, group: RankGroup, job: Job, output: Output, hearing: EventLoop, apply: Callable[[int, Event], object]
    ) -> None:
        self._group = group
        self._job = job
        self._output = output
        self._event_loop = hearing
        self._apply = apply

    def listen(self, rank: int) -> None:
        """Reads what a rank writes from now on, as soon as it comes."""
        for fd, stream in self._group.pipes(rank):
            self._event_loop.register(fd, partial(self._read, fd, rank, stream))

    def take(self, rank: int) -> None:
        """Reads all that is there."""
        for fd, stream in self._group.pipes(rank):
            while self._read(fd, rank, stream):
                pass

    def forget(self, rank: int) -> None:
        """Listens no more. What a rank has started may hold its pipes open."""
        for fd, _ in self._group.pipes(rank):
            self._event_loop.forget(fd)

    def end(self, rank: int) -> None:
        """Nothing more comes: a line that has not ended is one."""
        self._keep(rank, "stdout", self._output.end(self._global(rank), time.monotonic()))

    def interpose(self, rank: int, show: Callable[[], object]) -> None:
        """Has something else shown at its place in what a rank writes."""
        self.take(rank)
        self._output.interpose(self._global(rank), show, time.monotonic())

    def _read(self, fd: int, rank: int, stream: str) -> bool:
        """Takes what has been written; returns whether there may be more."""
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return False
        if not data:
            self._event_loop.forget(fd)
            return False
        self._keep(rank, stream, self._output.feed(self._global(rank), stream, data, time.monotonic()))
        return True

    def _keep(self, rank: int, stream: str, lines: list[str]) -> None:
        if len(lines) > _MOST_LINES:
            self._job.apply(rank, LinesLeftOut(len(lines) - _MOST_LINES))
        for text in lines[-_MOST_LINES:]:
            self._apply(rank, Line(stream, text))

    def _global(self, rank: int) -> int:
        return self._job.ranks[rank].rank
