"""Reads the ranks' standard output and error, shows it, and passes the lines on to the job."""

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

_READ_SIZE = 2**20
_MAX_LINES = 300
"""The most lines of one read that become events of the job. All of them are shown."""


class Pipes:
    """The pipes of the ranks of one call, by local rank.

    Args:
        group: The ranks.
        job: Has their global ranks.
        output: Shows what they write.
        event_loop: Polls the pipes.
        apply: Takes the lines as events.
    """

    def __init__(
        self, group: RankGroup, job: Job, output: Output, event_loop: EventLoop, apply: Callable[[int, Event], object]
    ) -> None:
        self._group = group
        self._job = job
        self._output = output
        self._event_loop = event_loop
        self._apply = apply

    def register(self, rank: int) -> None:
        """Has the event loop read a rank's output as it arrives."""
        for fd, stream in self._group.pipes(rank):
            self._event_loop.register(fd, partial(self._read, fd, rank, stream))

    def drain(self, rank: int) -> None:
        """Reads everything that is in the pipes now."""
        for fd, stream in self._group.pipes(rank):
            while self._read(fd, rank, stream):
                pass

    def unregister(self, rank: int) -> None:
        """Stops polling. End of file may never come, since a child process of the rank may hold its pipes open."""
        for fd, _ in self._group.pipes(rank):
            self._event_loop.unregister(fd)

    def flush(self, rank: int) -> None:
        """Treats an unfinished last line as a line, since nothing more comes."""
        self._record(rank, "stdout", self._output.end(self._global(rank), time.monotonic()))

    def interpose(self, rank: int, show: Callable[[], object] | None) -> None:
        """Shows something else, in its order within the rank's output; `None` if this rank's output is not shown."""
        self.drain(rank)
        self._output.interpose(self._global(rank), show, time.monotonic())

    def _read(self, fd: int, rank: int, stream: str) -> bool:
        """Reads once; returns whether there may be more."""
        try:
            data = os.read(fd, _READ_SIZE)
        except BlockingIOError:
            return False
        if not data:
            self._event_loop.unregister(fd)
            return False
        self._record(rank, stream, self._output.feed(self._global(rank), stream, data, time.monotonic()))
        return True

    def _record(self, rank: int, stream: str, lines: list[str]) -> None:
        if len(lines) > _MAX_LINES:
            self._job.apply(rank, LinesLeftOut(len(lines) - _MAX_LINES))
        for text in lines[-_MAX_LINES:]:
            self._apply(rank, Line(stream, text))

    def _global(self, rank: int) -> int:
        return self._job.ranks[rank].rank
