"""A job that another process runs, or ran: read from its folder into a `Job`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from notebook_accel.errors import JobLostError, StreamError
from notebook_accel.events import Event, JobEnded
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.output_events import OutputTail
from notebook_accel.launch.job.requests import Runner
from notebook_accel.launch.job.text import resume_commands
from notebook_accel.launch.journal import results
from notebook_accel.launch.journal.log_files import LogFiles
from notebook_accel.launch.journal.marks import Marks
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.journal.report_file import ReportFile, ReportTail
from notebook_accel.launch.journal.requests import rank_requester
from notebook_accel.launch.journal.state_file import StateReader
from notebook_accel.owner import Owner

_CAUSES = {
    Status.LOST: "its kernel was restarted or died",
    Status.LOST_WITH_COMMAND: "the command that ran it was killed",
    Status.LOST_WITH_PROCESS: "the process that ran it was killed",
}


class FollowedState:
    """The state of a job, without what its ranks have written and reported."""

    def __init__(self, record: Record, unused: Sequence[type[Event]] = ()) -> None:
        """Finds the job.

        Args:
            record: The job.
            unused: Events that the state may lack.

        Raises:
            JobLostError: Its state can't be read.
        """
        self.job = Job("", 0, 0)
        self.record = record
        self._state = StateReader(record.path, unused)

    @property
    def has_ended(self) -> bool:
        return self.job.outcome is not None

    def read_state(self) -> bool:
        """Takes the state as it is on disk; returns whether the job has ended.

        Raises:
            JobLostError: It can no longer be read, or doesn't begin with a job.
        """
        found = None if self.has_ended else self._state.read()
        if found is not None:
            self.job.restore(*found)
        return self.has_ended

    def end_if_abandoned(self, unrecorded: Callable[[], str]) -> bool:
        """Ends a job whose process has ended without recording it, with the text of an error.

        Returns:
            Whether the job has ended.
        """
        if self.has_ended:
            return True
        if self.record.is_running():
            return False
        if not self.read_state():  # the process may have recorded the end just before it exited
            end = self.record.unwritten_end()
            self.job.apply(None, end or JobEnded(self._state.head.lost.value, self.record.last_written(), unrecorded()))
        return True


class FollowedJob(FollowedState):
    """A job with all that is recorded of it, on which requests work through its files."""

    def __init__(self, record: Record, show: Callable[[], object]) -> None:
        """Finds the job.

        Args:
            record: The job.
            show: What `Job.show` does.

        Raises:
            JobLostError: Its state can't be read.
        """
        super().__init__(record)
        self.job.report_log.follow(ReportFile(record.reports))
        self.job.output_log.follow(LogFiles(record.path))
        self.job.output_log.contents.follow(LogFiles(record.path, "displays"))
        self.job.elsewhere = self._state.head.owner != Owner.this()
        self.job.runner = Runner(
            cancel=record.request_stop,
            show=show,
            request_ranks=rank_requester(self.job, record),
            rule_functions=None,
            values=lambda: results.result_of(self.job, record),
        )
        self.output = OutputTail(self.job)
        self._reports = ReportTail(record.reports)

    def mark(self) -> None:
        """Gives the job the name and the notes that its user has given it by now."""
        start = Marks.of(self.record).on(self.job.launched)
        self.job.given_title, self.job.notes = start.title, start.notes

    def read_state(self) -> bool:
        has_ended = super().read_state()
        self.mark()
        return has_ended

    def read(self) -> Iterator[tuple[int, Event]]:
        """Yields what ranks have written, displayed, and reported since the last time, after it was applied to the job.

        Ranks are global. What is in the files now is read after the state, in which the attempt that it belongs to has
        therefore begun; and if the state has the end, so do the files.

        Raises:
            JobLostError: The job can no longer be read.
        """
        if self.has_ended:
            return
        output_end, reports_end = self.output.end(), self._reports.size()
        has_ended = self.read_state()
        yield from self._read_files(output_end, reports_end)
        if has_ended:
            yield from self._read_files(self.output.end(), self._reports.size())

    def read_end(self) -> Iterator[tuple[int, Event]]:
        """Ends a job whose process has ended without recording it; yields as `read` does what was added until then."""
        if not self.has_ended and self.end_if_abandoned(self._unrecorded):
            yield from self._read_files(self.output.end(), self._reports.size())

    def refresh(self) -> None:
        """Brings the job up to date.

        Raises:
            JobLostError: The job can no longer be read.
        """
        for events in (self.read(), self.read_end()):
            deque(events, maxlen=0)

    def _read_files(self, output_end: int, reports_end: int) -> Iterator[tuple[int, Event]]:
        job, first = self.job, self.job.launched.first
        try:
            yield from self.output.read(output_end)
            if reports_end:
                for index, reports in self._reports.read(reports_end):
                    if index < job.first_size:
                        job.apply(index, reports)
                        yield first + index, reports
        except (OSError, StreamError) as error:
            raise JobLostError(f"the job's reports can't be read: {error}") from error

    def _unrecorded(self) -> str:
        text = f"{self.job.title} ended because {_CAUSES[self._state.head.lost]}"
        if self.record.saved_launch.exists():
            text += f". To continue it from its checkpoints, run {resume_commands(self.record.id)}"
        return text
