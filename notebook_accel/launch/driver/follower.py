"""Follows another process's job through its folder, and shows output and state until it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from functools import partial

from notebook_accel.events import Cleared, Event, Lines, Notice, Shown
from notebook_accel.launch.job import output_log
from notebook_accel.launch.job.text import label as rank_label
from notebook_accel.launch.journal.followed_job import FollowedJob
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.show import console, screens
from notebook_accel.launch.show.job_views import Views
from notebook_accel.launch.show.output import Output

_POLL_INTERVAL = 0.1
"""Seconds between two looks at the job's folder."""
_OWNER_CHECK_EVERY = 10
"""Looks between two checks that the job's process is alive, and to tell it that somebody looks."""
_BACKLOG = 1000
"""How many of the lines and displays from before the job was followed are shown, at most."""


class Follower:
    """Follows one job, and shows it in one cell."""

    def __init__(self, record: Record) -> None:
        """Reads the job so far.

        Raises:
            JobLostError: The job can't be read.
        """
        self._followed = FollowedJob(record, lambda: console.current.show(self.job))
        self.job = self._followed.job
        self._output: list[tuple[int, Lines | Shown | Cleared]] = []
        """What the ranks have written and displayed, to be shown; the ranks are global."""
        self._notices: list[str] = []
        self._take(self._followed.read())
        self._take(self._followed.read_end())
        if self._drop_all_but(_BACKLOG):
            self._note_left_out(0)

    @property
    def has_ended(self) -> bool:
        return self._followed.has_ended

    def open(self) -> None:
        """Shows the job as it is.

        Raises:
            ConfigurationError: NOTEBOOK_ACCEL_VIEW names a view that does not exist.
        """
        self._screen = screens.of(self.job)
        self.job.runner.notice_elsewhere = console.noticing_elsewhere()
        self._view = Views(self.job, console.current.choose_view(), reads_usage=False)
        self._view.open()

    def run(self) -> None:
        """Shows the job until it ends."""
        job, view = self.job, self._view
        first = job.ranks[0].rank
        label = partial(rank_label, job.label, first, job.local_size, max(job.world_size, job.first_size))
        # An earlier attempt may have had more ranks than the one that runs.
        ranks = range(first, first + job.first_size)
        shown = Output(ranks, label, self._screen, output_log.where_all_are(job.id))
        pause, rounds = threading.Event(), 0
        try:
            while not self.has_ended:
                self._show(shown)
                view.refresh()
                if view.is_seen and rounds % _OWNER_CHECK_EVERY == 0:
                    self._followed.record.watch()
                pause.wait(_POLL_INTERVAL)
                self._take(self._followed.read())
                rounds += 1
                if rounds % _OWNER_CHECK_EVERY == 0:
                    self._take(self._followed.read_end())
        finally:
            try:
                self._show(shown, all_of_it=True)
            finally:  # also where the output can no longer be shown, since `result` waits for the end
                job.settle()
                view.finish()

    def _take(self, events: Iterable[tuple[int, Event]]) -> None:
        """Keeps what is shown beside the job's state."""
        before = len(self._output)
        for rank, event in events:
            if isinstance(event, (Lines, Shown, Cleared)):
                self._output.append((rank, event))
            elif isinstance(event, Notice):
                self._notices.append(event.text)
        if self._followed.output.has_left_out:
            self._followed.output.has_left_out = False
            self._note_left_out(before)

    def _note_left_out(self, index: int) -> None:
        """Says at a place in the output that lines are missing there."""
        text = output_log.left_out(None, output_log.where_all_are(self.job.id))
        self._output.insert(index, (self.job.launched.first, Lines("stdout", [text])))

    def _drop_all_but(self, most: int) -> bool:
        """Drops the oldest lines and displays beyond a number; returns whether there are any."""
        left = most
        for index in range(len(self._output) - 1, -1, -1):
            rank, event = self._output[index]
            count = len(event.texts) if isinstance(event, Lines) else 1
            if count > left:
                rest = [(rank, Lines(event.stream, event.texts[-left:]))] if isinstance(event, Lines) and left else []
                self._output[: index + 1] = rest
                return True
            left -= count
        return False

    def _show(self, shown: Output, *, all_of_it: bool = False) -> None:
        now = time.monotonic()
        for text in self._notices:
            console.current.notice(text)
        for rank, event in self._output:
            if isinstance(event, Lines):
                shown.add(rank, event.stream, event.texts, now)
            else:
                shown.display(rank, event, now)
        self._notices, self._output = [], []
        shown.show(now, all_of_it=all_of_it)
