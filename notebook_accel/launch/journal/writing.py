"""Writes the journal of a job, at intervals and at its end. An error here never harms the launch."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
import weakref
from dataclasses import replace
from pathlib import Path

from notebook_accel.errors import JobLostError
from notebook_accel.events import Event, JobEnded, MemorySnapshot, SnapshotSaved
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.journal import pruning, records
from notebook_accel.launch.journal.lines import Head, encode
from notebook_accel.launch.journal.log_files import LogFiles
from notebook_accel.launch.journal.pending import Pending
from notebook_accel.launch.journal.records import Record, write_all
from notebook_accel.launch.journal.report_file import ReportFile
from notebook_accel.launch.journal.requests import RequestHandler
from notebook_accel.launch.journal.saved_launch import SavedLaunch
from notebook_accel.launch.show import console
from notebook_accel.owner import Owner

FIRST_WRITE = 0.1
"""Seconds after which a job is written for the first time: most launches are over by then, and written once."""
WRITE_INTERVAL = 0.3
"""Seconds between two writes, unless they take too much time for that."""
WRITE_SHARE = 0.01
"""The share of time that writing may take."""
LONGEST = 4 * 2**20
"""Bytes from which on a journal is compacted: its events are replaced by the fewest that fold to the same state."""
MOST_LINES_HELD = 2**20
"""Bytes of lines that are held in memory. More are written at once."""
MOST_UNRECORDED = 64 * 2**20
"""Bytes of reports that stay in memory if there is no journal; more are written to a temporary file."""
GROWTH = 4
"""The factor by which a journal grows after a compaction before the next one, if it is long itself."""

warned = False
"""Whether the user was warned that nothing is recorded, which happens once per process."""


class Journal:
    """Writes the journal of one job. The runner of the job refreshes it in turn with the views."""

    is_seen = False

    def __init__(self, job: Job, *, detached: bool = False, saved: SavedLaunch | None = None) -> None:
        self._job = job
        self._head = Head(
            owner=Owner.this(),
            origin=console.current.origin(),
            detached=detached,
            checkpoint_dir="" if saved is None else saved.checkpoint_dir,
        )
        self._saved = saved
        self._record: Record | None = None
        self._reports: ReportFile | None = None
        self._log: LogFiles | None = None
        self._unrecorded: ReportFile | None = None
        """The file of the reports if there is no journal."""
        self._pending = Pending()
        self._size = 0
        self._limit = LONGEST
        self._failed = False
        self._has_every_event = job.status is Status.STARTING
        """Whether this object has received every event of the job."""
        self._has_pruned = False
        self._due = time.monotonic() + FIRST_WRITE
        self._last_keepalive = time.monotonic()
        self._stop_requests = 0
        self._requests = RequestHandler(job)
        job.listen(self._on_event)

    def open(self) -> Record:
        """Creates the job's folder, so that other processes find the job from now on.

        Raises:
            OSError: It cannot be written.
        """
        self._prune()
        self._record = records.create(self._job.id, self._job.started)
        self._reports = ReportFile(self._record.reports)
        self._log = LogFiles(self._record.path)
        try:
            self._record.mark_running(self._head.owner)
            self._rewrite(self._beginning() if self._has_every_event and not self._failed else self._snapshot())
        except OSError:
            self._record.remove()
            self._record = self._reports = self._log = None
            raise
        self._save_launch(self._record)
        return self._record

    def begin(self) -> None:
        """Records the job now, also if it turns out to be brief. If it can't be, a notice says so."""
        self._write()

    def refresh(self) -> None:
        began = time.monotonic()
        self._prune()  # now, while the ranks start: removing folders takes longer than everything else here
        if began < self._due and self._job.output_log.unsaved < MOST_LINES_HELD:
            return
        self._write()
        if self._record is not None:
            self._poll_stop_requests(self._record)
            self._requests.poll(self._record)
            self._keep_alive(self._record, began)
        ended = time.monotonic()
        self._due = ended + max(WRITE_INTERVAL, (ended - began) / WRITE_SHARE)

    def finish(self) -> None:
        """Does nothing: `_on_event` has written everything when the job ended."""

    def _on_event(self, rank: int | None, event: Event) -> None:
        last = isinstance(event, JobEnded)
        if last and (self._job.report_log.has_unsaved or self._job.output_log.unsaved):
            self._write(last=True)  # before the end, since a process that follows the job reads nothing after it
        if last or not self._failed:
            self._pending.add(rank, event)
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
        if self._failed and not last:
            self._spill_reports()
            return
        try:
            if self._record is None:
                self.open()
            elif self._failed:
                self._rewrite(self._snapshot())  # the disk may have room again: write everything, or nothing
            else:
                self._append()
            self._save_reports()
            if self._log is not None:
                self._job.output_log.save(self._log)
        except (OSError, JobLostError) as error:  # the latter: the reports so far can't be read back
            self._fail(error)
        else:
            self._failed = False

    def _save_reports(self) -> None:
        log = self._job.report_log
        if log.has_unsaved and self._reports is not None and self._record is not None:
            log.save(self._reports)
            if log.needs_store:
                records.keep_for(self._record, self._job)

    def _save_snapshot(self, rank: int | None, event: MemorySnapshot) -> None:
        """Saves the snapshot of a rank's memory, before the job ends with an error that names the file."""
        if self._record is None and not self._failed:
            self._write()
        if self._record is None or rank is None:
            return
        path = self._record.memory_snapshot(self._job.ranks[rank].rank)
        with contextlib.suppress(OSError):
            _write(path, b"".join(event.data), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
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

    def _append(self) -> None:
        assert self._record is not None
        data = self._pending.take()
        if not data:
            return
        _write(self._record.journal, data, os.O_WRONLY | os.O_APPEND)
        self._size += len(data)
        if self._size > self._limit:
            self._head = replace(self._head, generation=self._head.generation + 1)
            self._rewrite(self._snapshot())

    def _beginning(self) -> bytes:
        """All events so far, as lines."""
        return encode(*next(self._job.events())) + self._pending.take()

    def _snapshot(self) -> bytes:
        """The fewest events that fold to the state of the job, as lines."""
        self._pending.take()
        return b"".join(encode(rank, event) for rank, event in self._job.events())

    def _rewrite(self, lines: bytes) -> None:
        assert self._record is not None
        data = replace(self._head, kept=lines.count(b"\n")).line() + lines
        new = self._record.journal.with_suffix(".new")
        try:
            _write(new, data, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.replace(new, self._record.journal)
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink()
            raise
        self._size = len(data)
        self._limit = max(LONGEST, GROWTH * len(data))

    def _poll_stop_requests(self, record: Record) -> None:
        count = record.stop_requests()
        for _ in range(self._stop_requests, count):
            self._job.cancel()
        self._stop_requests = max(self._stop_requests, count)

    def _keep_alive(self, record: Record, now: float) -> None:
        if now - self._last_keepalive > records.KEEPALIVE_INTERVAL:
            self._last_keepalive = now
            with contextlib.suppress(OSError):
                os.utime(record.running)

    def _fail(self, error: OSError | JobLostError) -> None:
        global warned  # a process belongs to one user
        self._failed = True
        self._pending.take()
        if not warned:
            warned = True
            console.current.notice(
                f"{self._job.title} keeps running, but is not recorded, so attach() won't find it later: {error}. "
                f"To use another folder, set {records.VARIABLE}."
            )


def _write(path: os.PathLike[str], data: bytes, flags: int) -> None:
    fd = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)
