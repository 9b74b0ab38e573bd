"""Gives the reports of a job's log piece by piece, each once."""

from __future__ import annotations

from collections.abc import Iterator

from notebook_accel.launch.job.report_log import Entry, ReportLog


class ReportFeed:
    """A feed of the reports of a log; see `metric_series.Feed`."""

    def __init__(self, log: ReportLog) -> None:
        self._log = log
        self._count = 0

    def __call__(self) -> Iterator[Entry]:
        """The reports that have come since the last call, which must have been iterated over to its end.

        Raises:
            JobLostError: They were in a file that is gone.
        """
        for entry in self._log.since(self._count):
            self._count += 1
            yield entry
