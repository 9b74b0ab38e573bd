"""Follows another process's job through its journal: replays the events, and shows output and state until it ends."""

from __future__ import annotations

import threading
import time
from functools import partial
from itertools import groupby

from notebook_accel.events import Cleared, JobEnded, Line, LinesLeftOut, Notice, Shown
from notebook_accel.launch.job.job import Job, Runner
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.logs import log_text
from notebook_accel.launch.job.text import label as rank_label
from notebook_accel.launch.journal import outcome
from notebook_accel.launch.journal.lines import decode
from notebook_accel.launch.journal.log_files import LogFiles
from notebook_accel.launch.journal.owner import Owner
from notebook_accel.launch.journal.reading import Tail, empty_job
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.journal.reply_files import rank_requester
from notebook_accel.launch.journal.report_file import ReportFile
from notebook_accel.launch.journal.stack_requests import stack_requester
from notebook_accel.launch.show import front_end
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
        self.job = empty_job()
        self.job.report_log.follow(ReportFile(record.reports))
        self.job.output_log.follow(LogFiles(record.path))
        self._record = record
        self._tail = Tail(record, decode)
        self._lines: list[tuple[int, Line | Shown | Cleared]] = []
        """What the ranks have written and displayed, to be shown."""
        self._notices: list[str] = []
        self._read()
        self._check_owner()
        self.job.elsewhere = self._tail.head.owner != Owner.this()
        self.job.runner = Runner(
            cancel=record.request_stop,
            show=lambda: front_end.current.show(self.job),
            request_stacks=stack_requester(self.job, record),
            request_ranks=rank_requester(self.job, record),
            values=lambda: outcome.result(self.job, record),
        )
        earlier = len(self._lines) - _BACKLOG
        if earlier > 0:
            del self._lines[:earlier]
            self._notices.insert(
                0,
                f"{earlier} earlier lines are not shown; the panel and job.log() have them",
            )

    @property
    def has_ended(self) -> bool:
        return self.job.outcome is not None

    def open(self) -> None:
        """Shows the job as it is.

        Raises:
            ConfigurationError: NOTEBOOK_ACCEL_VIEW names a view that does not exist.
        """
        self._view = front_end.Views(self.job, front_end.current.choose_view())
        self._view.open()

    def run(self) -> None:
        """Shows the job until it ends."""
        job, view = self.job, self._view
        first = job.ranks[0].rank
        label = partial(rank_label, job.label, first, job.local_size, max(job.world_size, job.first_size))
        # An earlier attempt may have had more ranks than the one that runs.
        ranks = range(first, first + job.first_size)
        shown = Output(ranks, label, front_end.current, log_text.where_all_are(job.id))
        pause, rounds = threading.Event(), 0
        try:
            while not self.has_ended:
                self._show(shown)
                view.refresh()
                pause.wait(_POLL_INTERVAL)
                self._read()
                rounds += 1
                if rounds % _OWNER_CHECK_EVERY == 0:
                    self._check_owner()
        finally:
            try:
                self._show(shown, all_of_it=True)
            finally:  # also where the output can no longer be shown, since `result` waits for the end
                self._tail.close()
                job.settle()
                view.finish()

    def close(self) -> Job:
        """Follows the job no longer; returns it as it is."""
        self._tail.close()
        return self.job

    def _read(self) -> None:
        for rank, event in self._tail.read():
            if rank is not None and isinstance(event, (Line, Shown, Cleared)):
                self._lines.append((self.job.ranks[rank].rank, event))  # a later attempt may have fewer
            elif rank is not None and isinstance(event, LinesLeftOut):
                self._notices.append(f"{event.count} lines of rank {self.job.ranks[rank].rank} are not shown")
            elif isinstance(event, Notice):
                self._notices.append(event.text)
            self.job.apply(rank, event)

    def _check_owner(self) -> None:
        """Records the end of a job whose process ended without recording it."""
        if self.has_ended or self._record.is_running():
            return
        self._read()  # the process may have recorded the end just before it exited
        if not self.has_ended and (unwritten := self._record.unwritten_end()):
            self.job.apply(None, unwritten)
        elif not self.has_ended:
            text = f"{self.job.title} ended because " + (
                "the process that ran it was killed" if self._tail.head.detached else "its kernel was restarted or died"
            )
            if self._record.saved_launch.exists():
                text += f". To continue it from its checkpoints, run %accelerate resume {self._record.id}"
            self.job.apply(None, JobEnded(Status.LOST.value, self._record.last_written(), text))

    def _show(self, shown: Output, *, all_of_it: bool = False) -> None:
        now = time.monotonic()
        for text in self._notices:
            front_end.current.notice(text)
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
