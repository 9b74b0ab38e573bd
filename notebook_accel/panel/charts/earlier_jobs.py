"""Earlier jobs whose metrics can be drawn behind those of a job."""

from __future__ import annotations

import time
from collections.abc import Iterator

from notebook_accel.errors import ConfigurationError, JobLostError
from notebook_accel.insight.metric_series import Feed
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.report_log import Entry
from notebook_accel.launch.job.text import title
from notebook_accel.launch.journal import records
from notebook_accel.launch.journal.job_summary import summarize
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.journal.report_file import ReportTail
from notebook_accel.panel.panel_model import EarlierJob

_MOST = 40


def find(job: Job) -> list[EarlierJob]:
    """The other jobs of this user that have reported metrics: those of the same function first, newest first."""
    found: list[tuple[bool, EarlierJob]] = []
    for record in reversed(records.all_records()):
        if len(found) == _MOST:
            break
        if record.id == job.id or not _has_reports(record):
            continue
        try:
            summary = summarize(record)
        except JobLostError:
            continue  # written by another version of this package, or just removed
        began = time.strftime("%Y-%m-%d %H:%M", time.localtime(summary.started))
        ranks = f"{summary.ranks} rank{'s' if summary.ranks > 1 else ''}"
        label = f"{title(summary.name)}, {began}, {ranks}, {summary.status.value}"
        found.append((summary.name != job.name, {"id": summary.id, "label": label}))
    return [each for _, each in sorted(found, key=lambda pair: pair[0])]


def feed(job_id: str) -> Feed:
    """The feed of a job's reports.

    Raises:
        JobLostError: There is no such job. Also raised by the feed, if its reports can't be read.
    """
    try:
        tail = ReportTail(records.find(job_id, "").reports)
    except ConfigurationError as error:
        raise JobLostError(f"the earlier job has been removed: {error}") from error

    def read() -> Iterator[Entry]:
        try:
            yield from tail.read()
        except OSError as error:
            raise JobLostError(f"the reports of the earlier job can't be read: {error}") from error

    return read


def _has_reports(record: Record) -> bool:
    try:
        return record.reports.stat().st_size > 0
    except OSError:
        return False
