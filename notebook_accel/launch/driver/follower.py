"""Follows another process's job through its journal: replays the events, and shows output and state until it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from functools import partial
from itertools import groupby

from notebook_accel.events import Cleared, Event, Line, LinesLeftOut, Notice, Shown
from notebook_accel.launch.job import output_log
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.text import label as rank_label
from notebook_accel.launch.journal.followed_job import FollowedJob
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.show import console, screens
from notebook_accel.launch.show.job_views import Views
from notebook_accel.launch.show.output import Output

_POLL_INTERVAL = 0.1
"""Seconds between two reads of the journal."""
_OWNER_CHECK_EVERY = 10
"""Reads of the journal between two checks that the job's process is alive."""
_BACKLOG = 1000
"""How many of the lines and displays from before the job was followed are shown, at most."""


class Follower:
    """Follows one job, and shows it in one cell."""

    def __init__(self, record: Record) -> None:
        """Reads the journal so far.

        Raises:
            JobLostError: The journal can't be read.
        """
        self._followed = FollowedJob(record, lambda: console.current.show(self.job))
        self.job = self._followed.job
        self._lines: list[tuple[int, Line | Shown | Cleared]] = []
        """What the ranks have written and displayed, to be shown."""
        self._notices: list[str] = []
        self._take(self._followed.read())
        self._take(self._followed.end_if_abandoned())
        earlier = len(self._lines) - _BACKLOG
        if earlier > 0:
            del self._lines[:earlier]
            self._notices.insert(0, f"earlier lines are not shown; {output_log.where_all_are(self.job.id)}")

    @property
    def has_ended(self) -> bool:
        return self._followed.has_ended

    def open(self) -> None:
        """Shows the job as it is.

        Raises:
            ConfigurationError: NOTEBOOK_ACCEL_VIEW names a view that does not exist.
        """
        self._screen = screens.record(self.job)
        self._view = Views(self.job, console.current.choose_view())
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
                pause.wait(_POLL_INTERVAL)
                self._take(self._followed.read())
                rounds += 1
                if rounds % _OWNER_CHECK_EVERY == 0:
                    self._take(self._followed.end_if_abandoned())
        finally:
            try:
                self._show(shown, all_of_it=True)
            finally:  # also where the output can no longer be shown, since `result` waits for the end
                self._followed.close()
                job.settle()
                view.finish()

    def close(self) -> Job:
        """Follows the job no longer; returns it as it is."""
        self._followed.close()
        return self.job

    def _take(self, events: Iterable[tuple[int | None, Event]]) -> None:
        """Keeps what is shown beside the job's state."""
        for rank, event in events:
            if rank is not None and isinstance(event, (Line, Shown, Cleared)):
                self._lines.append((self.job.ranks[rank].rank, event))  # a later attempt may have fewer
            elif rank is not None and isinstance(event, LinesLeftOut):
                text = output_log.left_out(event.count, output_log.where_all_are(self.job.id))
                self._lines.append((self.job.ranks[rank].rank, Line("stdout", text)))
            elif isinstance(event, Notice):
                self._notices.append(event.text)

    def _show(self, shown: Output, *, all_of_it: bool = False) -> None:
        now = time.monotonic()
        for text in self._notices:
            console.current.notice(text)
        for (rank, stream), group in groupby(self._lines, _written_together):
            if stream is not None:
                shown.add(rank, stream, [event.text for _, event in group if isinstance(event, Line)], now)
            else:
                for _, event in group:
                    assert not isinstance(event, Line)
                    shown.display(rank, event, now)
        self._notices, self._lines = [], []
        shown.show(now, all_of_it=all_of_it)


def _written_together(entry: tuple[int, Line | Shown | Cleared]) -> tuple[int, str | None]:
    """Equal for successive lines that one rank has written to one stream; the stream is `None` for a display."""
    rank, event = entry
    return rank, event.stream if isinstance(event, Line) else None
