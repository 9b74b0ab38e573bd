"""A job on disk, as far as the sidebar shows it: its state, and its main metric."""

from __future__ import annotations

from collections.abc import Iterator

from notebook_accel.events import (
    AttemptStarted,
    Heartbeat,
    JobEnded,
    LargestArrays,
    MemoryPeaks,
    ResidentHistory,
    SnapshotSaved,
    StepTimes,
)
from notebook_accel.jupyter.reader.run_metric import MainMetric, reading_reports
from notebook_accel.launch.job import progress
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.metric_charts import Drawing
from notebook_accel.launch.journal.followed_job import FollowedState
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.journal.report_file import ReportTail
from notebook_accel.launch.journal.slices import Slices
from notebook_accel.launch.journal.state_file import StoredState, version_of

_UNUSED = (Heartbeat, ResidentHistory, StepTimes, MemoryPeaks, LargestArrays, SnapshotSaved)
"""What a list of jobs doesn't show."""
_LOST = "The process that ran it ended without recording why"


class JobFold(FollowedState):
    """The state of one job, without its output; of its reports, the main metric."""

    def __init__(self, record: Record) -> None:
        """Finds the job.

        Raises:
            JobLostError: Its state can't be read.
        """
        super().__init__(record, _UNUSED)
        self._metric = MainMetric()
        self._attempt = 0
        """The attempt whose metric it is."""
        self._reports = ReportTail(record.reports)
        self._slices = Slices(self._read)

    def update(self, deadline: float) -> bool:
        """Reads what was added since the last time.

        Args:
            deadline: When to stop, on the clock of `time.monotonic`. The next call continues from there.

        Returns:
            Whether `job` is now as on disk.

        Raises:
            JobLostError: The job can no longer be read.
        """
        return self._slices.read(deadline)

    @property
    def is_behind(self) -> bool:
        """Whether the last call of `update` did not read everything."""
        return self._slices.is_behind

    def metric(self, points: int) -> Drawing | None:
        """The main metric over the run, in at most `points` points; `None` if nothing was reported."""
        return self._metric.drawn(progress.running(self.job), points)

    def _read(self) -> Iterator[None]:
        end = self._reports.size()  # first, so that the state has begun the attempt of each report
        self.read_state()
        self.end_if_abandoned(lambda: _LOST)
        if self.job.attempt != self._attempt:
            self._metric, self._attempt = MainMetric(), self.job.attempt
        with reading_reports():
            for rank, reports in self._reports.read(self._reports.size() if self.has_ended else end):
                if rank < self.job.first_size and reports.attempt in (None, self.job.attempt):
                    self._metric.add(rank, reports)
                yield


def glance(record: Record) -> Job:
    """The job without what its ranks have done.

    Raises:
        JobLostError: Its state can't be read.
    """
    stored = StoredState.read(record.path)
    start, end = stored.ends()
    job = Job("", 0, 0)
    job.restore([(None, start), (None, AttemptStarted(0))])
    if end is not None or not record.is_running():
        job.apply(None, end or record.unwritten_end() or JobEnded(stored.head.lost.value, record.last_written(), _LOST))
    return job


def version_on_disk(record: Record) -> tuple[object, ...]:
    """Equal for two moments between which the job has not changed on disk; last, whether it runs."""
    return version_of(record.path), ReportTail(record.reports).size(), record.outputs.exists(), record.is_running()
