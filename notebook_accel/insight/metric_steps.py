"""A metric of a job from its beginning, step by step as its chart shows it: for comparisons and sweeps."""

from __future__ import annotations

from notebook_accel.launch.job import progress
from notebook_accel.launch.job.job_state import JobState
from notebook_accel.launch.job.metric_charts import DrawnStep, DrawnSteps, LastAttempt


class MetricSteps:
    """The steps of a metric that its chart has drawn, each with the values of all ranks."""

    def __init__(self, job: JobState, metric: str) -> None:
        self._job = job
        self._read = 0
        """How many entries of the job's reports have been read."""
        self._drawn = DrawnSteps()
        self._metric = LastAttempt(metric, [self._drawn])
        self._given = -1

    def new(self) -> list[DrawnStep]:
        """The steps that have been drawn since the last time.

        Where reports have no steps, they are counted. A step that is reported again, as after a restart, is left out.

        Raises:
            JobLostError: The reports were in a file that is gone.
        """
        running = progress.running(self._job)  # first: what ranks that have ended reported is there
        for rank, reports in self._job.report_log.since(self._read):
            self._read += 1
            self._metric.add(rank, reports)
        if self._metric.chart is not None:
            self._metric.chart.settle(running)
        found = []
        for step in self._drawn.take():
            if step.key[1] > self._given:
                self._given = step.key[1]
                found.append(step)
        return found
