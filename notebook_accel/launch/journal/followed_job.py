"""A job that another process runs, or ran: its journal read into a `Job`, on which requests work through its files."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from notebook_accel.errors import JobLostError, StreamError
from notebook_accel.events import Event, JobEnded
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.requests import Runner
from notebook_accel.launch.journal import results
from notebook_accel.launch.journal.lines import decode
from notebook_accel.launch.journal.log_files import LogFiles
from notebook_accel.launch.journal.reading import Tail, empty_job
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.journal.report_file import ReportFile
from notebook_accel.launch.journal.requests import rank_requester
from notebook_accel.owner import Owner


class FollowedJob:
    """A job that is as its journal has it, as far as the events of `read` and `end_if_abandoned` were taken."""

    def __init__(self, record: Record, show: Callable[[], object]) -> None:
        """Opens the journal.

        Args:
            record: The job.
            show: What `Job.show` does.

        Raises:
            JobLostError: The journal can't be read.
        """
        self.job = empty_job()
        self.job.report_log.follow(ReportFile(record.reports))
        self.job.output_log.follow(LogFiles(record.path))
        self._record = record
        self._tail = Tail(record, decode)
        self.job.elsewhere = self._tail.head.owner != Owner.this()
        self.job.runner = Runner(
            cancel=record.request_stop,
            show=show,
            request_ranks=rank_requester(self.job, record),
            values=lambda: results.result_of(self.job, record),
        )

    @property
    def has_ended(self) -> bool:
        return self.job.outcome is not None

    def read(self) -> Iterator[tuple[int | None, Event]]:
        """Yields what was added since the last time; each event is applied to the job first.

        Raises:
            JobLostError: The journal or its reports can no longer be read, or the journal doesn't begin with a job.
        """
        try:
            for rank, event in self._tail.read():
                self.job.apply(rank, event)
                yield rank, event
        except (OSError, StreamError) as error:
            raise JobLostError(f"the job's reports can't be read: {error}") from error
        if not self.job.ranks:
            raise JobLostError("its journal has no valid first line")

    def end_if_abandoned(self) -> Iterator[tuple[int | None, Event]]:
        """Ends a job whose process has ended without recording it; yields as `read` does what was added until then."""
        if self.has_ended or self._record.is_running():
            return
        yield from self.read()  # the process may have recorded the end just before it exited
        if not self.has_ended:
            self.job.apply(None, self._record.unwritten_end() or self._unrecorded_end())

    def close(self) -> None:
        self._tail.close()

    def _unrecorded_end(self) -> JobEnded:
        text = f"{self.job.title} ended because " + (
            "the process that ran it was killed" if self._tail.head.detached else "its kernel was restarted or died"
        )
        if self._record.saved_launch.exists():
            text += f". To continue it from its checkpoints, run %accelerate resume {self._record.id}"
        return JobEnded(Status.LOST.value, self._record.last_written(), text)
