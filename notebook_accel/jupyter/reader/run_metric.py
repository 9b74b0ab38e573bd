"""Metrics of a job on disk, thinned: several, read on demand, or the main one, while the job is read."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

from notebook_accel.errors import JobLostError, StreamError
from notebook_accel.events import JobEnded, Reports
from notebook_accel.launch.job import metric_charts, progress
from notebook_accel.launch.job.metric_charts import MOST_BINS, Chart, Drawing, LastAttempt
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.journal.report_file import ReportTail
from notebook_accel.launch.journal.slices import Slices
from notebook_accel.launch.journal.state_file import StoredState, version_of
from notebook_accel.panel.panel_charts import MOST_CHARTS

_MOST_NAMES = 300


class RunMetrics:
    """Metrics of the last attempt of a job."""

    def __init__(self, record: Record, name: str) -> None:
        """Finds the job's beginning.

        Args:
            record: The job.
            name: A metric that is read in any case, beside the first ones that the job has reported.

        Raises:
            JobLostError: The journal can't be read.
        """
        self._version = version_of(record.path)
        """Of the state that was read last."""
        stored = StoredState.read(record.path)
        self.start, self._end = stored.ends()
        self.notebook = stored.head.notebook
        """The name of the notebook that it was launched from; empty if it isn't known."""
        self.names: dict[str, None] = {}
        """All metrics, in the order in which they came."""
        self._record = record
        self._metrics = {name: LastAttempt(name)}
        self._tail = ReportTail(record.reports)
        self._slices = Slices(self._read)

    def read(self, deadline: float) -> bool:
        """Reads what has come since; returns whether it is done, which it may not be at `deadline`, a monotonic time.

        Raises:
            JobLostError: The reports can't be read.
        """
        return self._slices.read(deadline)

    @property
    def end(self) -> JobEnded | None:
        """How the job has ended; `None` if it runs, or has ended without a word."""
        if self._end is None and not self._record.is_running() and self._version != version_of(self._record.path):
            self._version = version_of(self._record.path)
            _, self._end = StoredState.read(self._record.path).ends()
        return self._end

    @property
    def is_running(self) -> bool:
        """Whether the job runs."""
        return self._end is None and self._record.is_running()

    def has(self, name: str) -> bool:
        """Whether a metric is among those that are read, or was not reported yet."""
        return name in self._metrics or name not in self.names

    def drawn(self, detailed: str, most: int) -> dict[str, Drawing]:
        """What to draw now of each metric that was reported: `detailed` in `MOST_BINS` points, others in `most`."""
        running = range(self.start.size) if self.is_running else ()
        charts = {name: self._metrics[name].chart for name in self.names if name in self._metrics}
        return {
            name: metric_charts.draw(chart, running, MOST_BINS if name == detailed else most)
            for name, chart in charts.items()
            if chart is not None
        }

    def _read(self) -> Iterator[None]:
        with reading_reports():
            for rank, reports in self._tail.read():
                self._add(rank, reports)
                yield

    def _add(self, rank: int, reports: Reports) -> None:
        for name in dict.fromkeys(name for names in reports.names for name in names):
            if len(self.names) < _MOST_NAMES:
                self.names[name] = None
            if name not in self._metrics and len(self._metrics) <= MOST_CHARTS:
                self._metrics[name] = LastAttempt(name)
        for metric in self._metrics.values():
            metric.add(rank, reports)


@contextlib.contextmanager
def reading_reports() -> Iterator[None]:
    """Ends the body where there is no file of reports.

    Raises:
        JobLostError: They can't be read.
    """
    try:
        yield
    except FileNotFoundError:
        pass  # nothing was reported
    except (OSError, StreamError) as error:
        raise JobLostError(f"the job's reports can't be read: {error}") from error


class MainMetric:
    """The main metric of one attempt, as `progress.main_metric` chooses it.

    A metric that takes the place of another one does so with its first report, so its chart is complete.
    """

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        """All metrics, in the order in which they came."""
        self._chart: Chart | None = None

    def add(self, rank: int, reports: Reports) -> None:
        """Adds what a rank has reported.

        Raises:
            StreamError: The columns of the reports don't fit together.
        """
        new = [name for names in reports.names for name in names if name not in self._names]
        if new:
            self._names.update(dict.fromkeys(new))
        name = progress.main_metric(list(self._names)) if new or self._chart is None else self._chart.name
        if name is None:
            return
        if self._chart is not None and self._chart.name != name:
            self._chart = None
        self._chart = metric_charts.add(self._chart, name, rank, reports)

    def drawn(self, running: Collection[int], most: int) -> Drawing | None:
        """What to draw of it now, in at most `most` bins; `None` if nothing was reported."""
        return None if self._chart is None else metric_charts.draw(self._chart, running, most)
