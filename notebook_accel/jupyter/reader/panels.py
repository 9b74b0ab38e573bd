"""The panels that pages show in tabs. Each job is followed once, as long as a page shows it."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from notebook_accel.errors import JobLostError
from notebook_accel.events import Event
from notebook_accel.jupyter.panel_update import PanelUpdate
from notebook_accel.jupyter.reader.job_list import find
from notebook_accel.jupyter.reader.job_row import damage
from notebook_accel.jupyter.reader.panel_session import BUSY_INTERVAL, BadMessageError, PanelSession
from notebook_accel.launch.journal.followed_job import FollowedJob
from notebook_accel.launch.journal.records import Record

READING = 0.2
"""Seconds for which one call may read a journal."""
FORGOTTEN_AFTER = 60.0
"""Seconds after which a panel is closed that its page no longer asks for; if it does later, it gets the whole state."""
MOST = 32
"""The most panels that are open."""
_CLOCK_EVERY = 64
"""Events between two looks at the clock."""


class UnreadableJobError(JobLostError):
    """The job's journal can't be read."""


class Panels:
    """The panels that are open. For one thread at a time."""

    def __init__(self) -> None:
        self._jobs: dict[Record, _ShownJob] = {}
        self._sessions: dict[tuple[Record, str], PanelSession] = {}
        """By the job and the page's name for its panel; the last in order is the one that was used last."""

    def update(
        self, job_id: str, panel: str, seq: int, messages: Sequence[Mapping[str, Any]], seconds: float = READING
    ) -> PanelUpdate:
        """Does what a panel requests, and returns what is new.

        Args:
            job_id: The job.
            panel: What the page calls its panel.
            seq: The number of the last update that the page has; -1 if it has none.
            messages: What the panel requests, in order.
            seconds: How long the journal may be read; the next call continues.

        Raises:
            UnknownJobError: There is no such job.
            UnreadableJobError: Its journal can't be read.
            BadMessageError: No panel sends such a message.
        """
        record = find(job_id)
        self._forget(time.monotonic() - FORGOTTEN_AFTER)
        try:
            return self._update(record, panel, seq, messages, seconds)
        except BadMessageError:
            raise
        except Exception as error:
            self._close(record)
            if not isinstance(error, JobLostError):  # a damaged journal may hold anything
                traceback.print_exc()  # in the log of the Jupyter server
            reason = str(error) if isinstance(error, JobLostError) else damage(error)
            raise UnreadableJobError(f"This job can't be read: {reason}") from error

    def _update(
        self, record: Record, panel: str, seq: int, messages: Sequence[Mapping[str, Any]], seconds: float
    ) -> PanelUpdate:
        shown = self._jobs.get(record) or _ShownJob(record)
        self._jobs[record] = shown
        is_read = shown.update(time.monotonic() + seconds)
        session = self._sessions.pop((record, panel), None)
        if session is None:
            if not is_read:
                return {"seq": seq, "replies": [], "results": [], "pause": BUSY_INTERVAL, "reading": True}
            session = PanelSession(shown.followed.job, shown.stop)
        self._sessions[record, panel] = session
        for message in messages:
            session.handle(message)
        return session.update(seq)

    def close(self) -> None:
        """Closes all panels."""
        for record in list(self._jobs):
            self._close(record)

    def _forget(self, before: float) -> None:
        """Closes panels that were not used since a time of the monotonic clock, and the oldest if there are many."""
        surplus = len(self._sessions) - MOST
        for number, (key, session) in enumerate(list(self._sessions.items())):
            if session.last_used < before or number < surplus:
                del self._sessions[key]
        for record, shown in list(self._jobs.items()):
            if shown.last_used < before:
                self._close(record)

    def _close(self, record: Record) -> None:
        for key in [key for key in self._sessions if key[0] == record]:
            del self._sessions[key]
        if record in self._jobs:
            self._jobs.pop(record).followed.close()


class _ShownJob:
    """A job that is followed, a limited time at each call."""

    def __init__(self, record: Record) -> None:
        self.followed = FollowedJob(record, show=lambda: None)
        self._record = record
        self._unread: Iterator[tuple[int | None, Event]] | None = None
        self.last_used = time.monotonic()

    def update(self, deadline: float) -> bool:
        """Reads what was added; returns whether it is done, which it may not be at `deadline`, a monotonic time."""
        self.last_used = time.monotonic()
        if self._unread is None:
            self._unread = self._events()
        for number, _ in enumerate(self._unread, 1):
            if number % _CLOCK_EVERY == 0 and time.monotonic() > deadline:
                return False
        self._unread = None
        return True

    def stop(self, click: int) -> None:
        """Asks the job to stop, unless it was asked so often before."""
        if not self.followed.has_ended and click > max(self.followed.job.stopping, self._record.stop_requests()):
            self._record.request_stop()

    def _events(self) -> Iterator[tuple[int | None, Event]]:
        had_ended = self.followed.has_ended
        yield from self.followed.read()
        yield from self.followed.end_if_abandoned()
        if self.followed.has_ended and not had_ended:
            self.followed.job.settle()  # so that requests to its ranks are refused
