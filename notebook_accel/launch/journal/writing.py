"""Writes what is recorded of a job, at intervals and at its end. An error here never harms the launch.

The state is written first, then the reports, the contents of rich outputs, and the log, which refers to them. A reader
checks how long these files are before it reads the state, so that what it takes from them is of an attempt that the
state has begun. At the end, the order is the opposite: once the state has the end, the files are complete.

In between, the log is written as often as the ranks' output is shown, so that what was shown is there if the process is
killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
import weakref
from pathlib import Path

from notebook_accel.errors import JobLostError
from notebook_accel.events import (
    AttemptStarted,
    Cleared,
    Event,
    JobEnded,
    Lines,
    MemorySnapshot,
    Notice,
    Reports,
    Shown,
    SnapshotSaved,
)
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.journal import pruning, records
from notebook_accel.launch.journal.log_files import CONTENTS_LIMIT, LogFiles
from notebook_accel.launch.journal.private_files import open_private
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.journal.report_file import ReportFile
from notebook_accel.launch.journal.requests import RequestHandler
from notebook_accel.launch.journal.saved_launch import SavedLaunch
from notebook_accel.launch.journal.state_file import Head, StateWriter
from notebook_accel.launch.show import console
from notebook_accel.owner import Owner

FIRST_WRITE = 0.1
"""Seconds after which a job is written for the first time: most launches are over by then, and written once."""
WRITE_INTERVAL, WATCHED_INTERVAL = 0.3, 0.1
"""Seconds between two writes, unless they take too much time for that: usually, and while somebody looks at them."""
WRITE_SHARE, WATCHED_SHARE = 0.01, 0.03
"""The share of time that writing may take. To draw a job in this process takes as much as the second one has more."""
MOST_LINES_HELD = 2**20
"""Bytes of lines that are held in memory. More are written at once."""
MOST_UNRECORDED = 64 * 2**20
"""Bytes of reports that stay in memory if there is no journal; more are written to a temporary file."""
_NOT_STATE = (Reports, Lines, Shown, Cleared, Notice, MemorySnapshot)
"""Events that don't change the state on disk: they have files of their own."""

warned = False
"""Whether the user was warned that nothing is recorded, which happens once per process."""


class _Files:
    """The files of a job that change while it runs."""

    def __init__(self, record: Record, head: Head, job: Job) -> None:
        self.state = StateWriter(record.path, head)
        self._reports = ReportFile(record.reports)
        self._contents = LogFiles(record.path, "displays", CONTENTS_LIMIT)
        self._log = LogFiles(record.path)
        self._record = record
        self._job = job

    def save_output(self) -> None:
        """Saves what ranks have reported, displayed, and written."""
        reports = self._job.report_log
        if reports.has_unsaved:
            reports.save(self._reports)
            if reports.needs_store:
                records.keep_for(self._record, self._job)
        self.save_log()

    def save_log(self) -> None:
        """Saves what ranks have displayed and written."""
        self._job.output_log.contents.save(self._contents)
        self._job.output_log.save(self._log)


class Journal:
    """Writes the journal of one job. The runner of the job refreshes it in turn with the views."""

    is_seen = False
    """Whether another process shows the job now."""

    def __init__(
        self, job: Job, *, detached: bool = False, is_command: bool = False, saved: SavedLaunch | None = None
    ) -> None:
        self._job = job
        self._head = Head(
            owner=Owner.this(),
            origin=console.current.origin(),
            detached=detached,
            is_command=is_command,
            checkpoint_dir="" if saved is None else saved.checkpoint_dir,
        )
        self._saved = saved
        self._record: Record | None = None
        self._files: _Files | None = None
        self._unrecorded: ReportFile | None = None
        """The file of the reports if there is no journal."""
        self._has_changed = True
        """Whether the state is not yet on disk."""
        self._has_attempt = False
        """Whether the state on disk has begun the attempt that runs."""
        self._failed = False
        self._has_pruned = False
        self._due = time.monotonic() + FIRST_WRITE
        self._log_due = 0.0
        """When the log may be written between two writes of everything."""
        self._last_keepalive = time.monotonic()
        self._lock = threading.RLock()
        """Held while the job is written: a view on another thread may need it to be recorded."""
        self._requests = RequestHandler(job)
        job.runner.record = self.begin
        job.listen(self._on_event)

    def open(self) -> Record:
        """Creates the job's folder, so that other processes find the job from now on.

        Raises:
            OSError: It cannot be written.
        """
        self._record = records.create(self._job.id, self._job.started)
        self._files = _Files(self._record, self._head, self._job)
        try:
            self._record.mark_running(self._head.owner)
            self._save(self._files)
        except (OSError, JobLostError):
            self.discard()
            raise
        self._save_launch(self._record)
        return self._record

    def begin(self) -> None:
        """Records the job now, also if it turns out to be brief. If it can't be, a notice says so."""
        self._write()

    def discard(self) -> None:
        """Removes what was recorded of a job that does not begin."""
        if self._record is not None:
            self._record.remove()
            self._record = self._files = None

    def refresh(self) -> None:
        began = time.monotonic()
        self._prune()  # now, while the ranks start: removing folders takes longer than everything else here
        if began < self._due and self._job.output_log.unsaved < MOST_LINES_HELD:
            if began >= self._log_due and self._job.output_log.unsaved:
                self._write_log(began)
            return
        self._write()
        if self._record is not None:
            self._requests.poll(self._record)
            self._keep_alive(self._record, began)
            self.is_seen = self._record.is_watched()
        ended = time.monotonic()
        interval, share = (WATCHED_INTERVAL, WATCHED_SHARE) if self.is_seen else (WRITE_INTERVAL, WRITE_SHARE)
        self._due = ended + max(interval, (ended - began) / share)

    def finish(self) -> None:
        """Does nothing: `_on_event` has written everything when the job ended."""

    def _on_event(self, rank: int | None, event: Event) -> None:
        if not isinstance(event, _NOT_STATE):
            self._has_changed = True
        if isinstance(event, AttemptStarted):
            self._has_attempt = False
        if isinstance(event, MemorySnapshot):
            self._save_snapshot(rank, event)
        if isinstance(event, JobEnded):
            self._write(last=True)
            if self._record is not None:
                self._record.mark_ended(unwritten=event.status if self._failed else "")
                if event.status == Status.DONE.value:
                    with contextlib.suppress(OSError):
                        self._record.saved_launch.unlink()

    def _write(self, *, last: bool = False) -> None:
        with self._lock:
            self._write_locked(last=last)

    def _write_locked(self, *, last: bool) -> None:
        if self._failed and not last:
            self._spill_reports()
            return
        try:
            if self._files is None:
                self.open()
            else:
                self._save(self._files)
        except (OSError, JobLostError) as error:  # the latter: the reports so far can't be read back
            self._fail(error)
        else:
            self._failed = False

    def _write_log(self, began: float) -> None:
        if self._files is None or self._failed or not self._has_attempt:
            return
        try:
            self._files.save_log()
        except OSError as error:
            self._fail(error)
        ended = time.monotonic()
        self._log_due = ended + (ended - began) / WRITE_SHARE

    def _save(self, files: _Files) -> None:
        if not self._job.status.ended:
            self._save_state(files)
            files.save_output()
            return
        try:
            files.save_output()
        finally:  # also on a full disk, where a state often has room in place of the one before
            self._save_state(files)

    def _save_state(self, files: _Files) -> None:
        if self._has_changed:
            files.state.write(self._job.events())
            self._has_changed, self._has_attempt = False, True

    def _save_snapshot(self, rank: int | None, event: MemorySnapshot) -> None:
        """Saves the snapshot of a rank's memory, before the job ends with an error that names the file."""
        if self._record is None and not self._failed:
            self._write()
        if self._record is None or rank is None:
            return
        path = self._record.memory_snapshot(self._job.ranks[rank].rank)
        with contextlib.suppress(OSError):
            with open(path, "wb", opener=open_private) as file:
                file.writelines(event.data)
            self._job.apply(rank, SnapshotSaved(str(path)))

    def _spill_reports(self) -> None:
        """Without a journal, moves reports that are too many for memory to a file that is removed with the job."""
        log = self._job.report_log
        if log.size < MOST_UNRECORDED:
            return
        with contextlib.suppress(OSError, JobLostError):
            if self._unrecorded is None:
                folder = tempfile.mkdtemp(prefix="notebook-accel-")
                weakref.finalize(self._job, shutil.rmtree, folder, ignore_errors=True)
                self._unrecorded = ReportFile(Path(folder, "reports"))
            log.save(self._unrecorded)

    def _save_launch(self, record: Record) -> None:
        """Stores what is needed to launch the job again."""
        saved, self._saved = self._saved, None  # may be large, and the file has it
        if saved is None or not saved.parts:
            return
        try:
            saved.write(record.saved_launch)
        except OSError as error:
            with contextlib.suppress(OSError):
                record.saved_launch.unlink()
            console.current.notice(
                f"%accelerate resume will not find {self._job.title}, because its function can't be stored: {error}. "
                "To continue from its checkpoints, run the same launch with the same folder."
            )

    def _prune(self) -> None:
        if not self._has_pruned:
            self._has_pruned = True
            pruning.prune()

    def _keep_alive(self, record: Record, now: float) -> None:
        if now - self._last_keepalive > records.KEEPALIVE_INTERVAL:
            self._last_keepalive = now
            with contextlib.suppress(OSError):
                os.utime(record.running)

    def _fail(self, error: OSError | JobLostError) -> None:
        global warned  # a process belongs to one user
        self._failed = True
        if not warned:
            warned = True
            console.current.notice(
                f"{self._job.title} keeps running, but is not recorded, so attach() won't find it later: {error}. "
                f"To use another folder, set {records.VARIABLE}."
            )
