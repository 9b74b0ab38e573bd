"""The panels that pages show in tabs and below cells: what each page knows of its job, and what it has asked for."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from notebook_accel.errors import JobLostError, NotebookAccelError
from notebook_accel.events import Event
from notebook_accel.jupyter.model import ServedUpdate
from notebook_accel.jupyter.reader.job_list import find
from notebook_accel.jupyter.reader.job_row import telling_damage
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.journal import pages
from notebook_accel.launch.journal.followed_job import FollowedJob
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.journal.slices import Slices
from notebook_accel.panel import html_page
from notebook_accel.panel.panel_session import PanelSession

READING = 0.2
"""Seconds for which one call may read a journal."""
FORGOTTEN_AFTER = 60.0
"""Seconds after which a panel is closed that its page no longer asks for; if it does later, it gets the whole state."""
MOST = 32
"""The most panels that are open."""
INTERVAL, BUSY_INTERVAL, NO_MORE = 90, 40, -1
"""Milliseconds until the page asks again: usually, and while an answer is being made; or it doesn't by itself."""
SHARE = 0.03
"""The part of a core that one panel may take."""
LOOK_EVERY = 1.0
"""Seconds between two signs to a job's process that somebody looks at it, and two looks at an ended one's marks."""
_ANSWERING = 0.1
"""Seconds for which one call may make answers."""
_NOTHING: ServedUpdate = {"buffers": [], "pause": BUSY_INTERVAL, "reading": False, "resume": None, "output": None}


class UnreadableJobError(JobLostError):
    """The job's journal can't be read."""


class Panels:
    """The panels that are open. For one thread at a time."""

    def __init__(self) -> None:
        self._jobs: dict[Record, _ShownJob] = {}
        self._sessions: dict[tuple[Record, str], ServedPanel] = {}
        """By the job and the page's name for its panel; the last in order is the one that was used last."""

    def update(
        self, job_id: str, panel: str, seq: int, messages: Sequence[Mapping[str, Any]], seconds: float = READING
    ) -> ServedUpdate:
        """Does what a panel requests, and returns what is new.

        Args:
            job_id: The job.
            panel: What the page calls its panel.
            seq: The number of the state that the page has; -1 if it has none.
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
            with telling_damage():
                return self._update(record, panel, seq, messages, seconds)
        except JobLostError as error:
            self._close(record)
            raise UnreadableJobError(f"This job can't be read: {error}") from error

    def _update(
        self, record: Record, panel: str, seq: int, messages: Sequence[Mapping[str, Any]], seconds: float
    ) -> ServedUpdate:
        shown = self._jobs.get(record) or _ShownJob(record)
        self._jobs[record] = shown
        is_read = shown.update(time.monotonic() + seconds)
        session = self._sessions.pop((record, panel), None)
        if session is None:
            if not is_read:
                return {**_NOTHING, "reading": True}
            session = ServedPanel(shown.followed.job, shown.stop, partial(pages.note_output, record))
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
        self._jobs.pop(record, None)


class _ShownJob:
    """A job that is followed, a limited time at each call."""

    def __init__(self, record: Record) -> None:
        self.followed = FollowedJob(record, show=lambda: None)
        self._record = record
        self._slices = Slices(self._events)
        self.last_used = time.monotonic()
        self._look_due = 0.0

    def update(self, deadline: float) -> bool:
        """Reads what was added; returns whether it is done, which it may not be at `deadline`, a monotonic time."""
        self.last_used = time.monotonic()
        if self.last_used >= self._look_due:
            self._look_due = self.last_used + LOOK_EVERY
            if self.followed.has_ended:
                self.followed.mark()  # which reading does before the end
            else:
                self._record.watch()
        return self._slices.read(deadline)

    def stop(self, click: int) -> None:
        """Asks the job to stop, unless it was asked so often before."""
        if not self.followed.has_ended and click > max(self.followed.job.stopping, self._record.stop_requests()):
            self._record.request_stop()

    def _events(self) -> Iterator[tuple[int, Event]]:
        had_ended = self.followed.has_ended
        yield from self.followed.read()
        yield from self.followed.read_end()
        if self.followed.has_ended and not had_ended:
            self.followed.job.settle()  # so that requests to its ranks are refused


class BadMessageError(NotebookAccelError):
    """A page has sent what no panel sends."""


class ServedPanel:
    """One panel, whose page asks for its updates."""

    def __init__(self, job: Job, stop: Callable[[int], object], note_output: Callable[[str, str], object]) -> None:
        """Begins with nothing sent.

        Args:
            job: The job, which is kept up to date elsewhere.
            stop: Called with the number of clicks on Stop so far.
            note_output: Called with the notebook and the cell that show the panel, if the page says it.
        """
        self._job = job
        self._note_output = note_output
        self._wants_output = False
        self._session = PanelSession(job, stop)
        self.last_used = time.monotonic()

    def handle(self, message: Mapping[str, Any]) -> None:
        """Does what the page sends; see `PanelSession.handle`.

        A panel below a cell also sends `{"cmd": "drawn", "notebook": "a.ipynb", "cell": "1c2b"}`, and requests what
        stays in the notebook: `{"cmd": "output"}`.

        Raises:
            BadMessageError: No panel sends such a message.
        """
        try:
            if message["cmd"] == "drawn":
                self._note_output(str(message["notebook"]), str(message["cell"]))
            elif message["cmd"] == "output":
                self._wants_output = True
            else:
                self._session.handle(message)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise BadMessageError(f"the panel has sent a message that isn't valid: {error!r}") from error

    def update(self, seq: int) -> ServedUpdate:
        """What is new.

        Args:
            seq: The number of the state that the page has. If it isn't the last one, the page gets the whole state.
        """
        self.last_used = time.monotonic()
        began = time.thread_time()
        self._session.look()
        changes = self._session.changes(seq)
        answers, numbers = self._session.answers(_ANSWERING)
        found: ServedUpdate = {**_NOTHING, **changes, **answers}
        found["buffers"] = [base64.b64encode(each).decode() for each in numbers]
        if self._job.status.ended:
            found["resume"] = html_page.resume_label(self._job)
        if self._wants_output:
            self._wants_output = False
            found["output"] = html_page.bundle(self._job)
        pause = max(INTERVAL, round(1000 * (time.thread_time() - began) / SHARE))
        found["pause"] = BUSY_INTERVAL if self._session.is_answering else NO_MORE if self._session.is_quiet else pause
        return found
