"""The chart of a job's main metric. The sidebar shows no other, so the values of others aren't even unpacked."""

from __future__ import annotations

from collections.abc import Collection

from notebook_accel.events import Reports
from notebook_accel.jupyter.reader import run_metric
from notebook_accel.launch.job import metric_charts, progress
from notebook_accel.launch.job.metric_charts import Chart, Drawing


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
        self._chart = run_metric.add(self._chart, name, rank, reports)

    def drawn(self, running: Collection[int], most: int) -> Drawing | None:
        """What to draw of it now, in at most `most` bins; `None` if nothing was reported."""
        return None if self._chart is None else metric_charts.draw(self._chart, running, most)
